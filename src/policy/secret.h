/*
 * secret.h: names that look like credentials, and names that are heavy.
 *
 * Judged by name only: no file is opened. A secret-looking path is sent into a sandbox only if
 * git tracks it or the user asked for it by --include. Templates (.env.example and the like) are
 * not secrets. Limits: a credential under an innocent name is not found; see also .airlockignore.
 */
#ifndef AIRLOCK_POLICY_SECRET_H
#define AIRLOCK_POLICY_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* name: the last segment. A secret-looking directory holds back everything below it. */
bool secret_looking(const char *name, size_t n, bool is_dir);
/*
 * Directories of packages and caches that can be made anew (node_modules, .venv, ...). Only used
 * outside git, where no ignore file speaks of them. "target", "build" and "dist" are not among
 * them: outside git such names are as often work as they are output.
 */
bool secret_heavy_dir(const char *name, size_t n);

#endif
