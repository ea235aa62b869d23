/*
 * Directories of tests that go with the test's process, also when an assertion ended the test before it cleaned up.
 *
 * A child of the process removes nothing, and a directory that the test removed itself is no error.
 */
#pragma once

/* As mkdtemp(3); the text at `template` names the directory afterwards. NULL and errno on failure. */
char *scratch_dir(char *template);

/* Removes it now, whatever modes are in it. */
void scratch_remove(const char *path);
