/*
 * envvars.h: the words of a command's environment that a user may give.
 *
 * Pure. Values are never put into a message: they may be secrets.
 *
 * Environment file (dotenv): one NAME=VALUE a line, "export " before it is allowed; blank
 * lines and lines that begin with '#' are skipped. Unquoted values end at the line's end or at
 * blank + '#', and are trimmed. 'single quotes': as is, may span lines. "double quotes": \n \r
 * \t \\ \" \$ are understood, may span lines. Nothing is expanded: '$' means itself.
 */
#ifndef AIRLOCK_POLICY_ENVVARS_H
#define AIRLOCK_POLICY_ENVVARS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* True if the NAME of NAME=VALUE can be one. */
bool envvars_name_ok(const char *word);
/*
 * word: NAME=VALUE. Refuses a bad name, a NUL or too long value, names that Airlock sets itself
 * (AIRLOCK_*, PAPERCLIP_RUN_ID, PAPERCLIP_API_URL, PAPERCLIP_API_KEY), and, where nothing
 * isolates, the hooks of loaders and interpreters that would run code in Airlock's name.
 */
int envvars_check(const char *word, bool isolates, struct err *e);
/* name: for messages. Appends to *v (base/str.h vector). */
int envvars_parse(const char *name, const char *text, size_t n, char ***v, struct err *e);
/* Replaces an entry of the same name, else appends. */
int envvars_set(char ***v, const char *word);

#endif
