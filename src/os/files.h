/*
 * files.h: the limit of open files of this process.
 *
 * Airlock needs some hundred descriptors for a moment, whatever its caller is content with: the soft limit
 * is raised as far as needed and the hard one allows. A command of the host (local provider) gets back
 * what the caller had.
 */
#ifndef AIRLOCK_OS_FILES_H
#define AIRLOCK_OS_FILES_H

#include "base/err.h"

#define FILES_NEED 192 /* the launcher's layers, binds and other places, libraries and some air */

/* Once, at the start of the program. Never fails: files_check says what is missing. */
void files_raise(void);
/* 0, or ERR_UNAVAILABLE with limit, need and remedy. */
int files_check(struct err *e);
/* In a child, before exec. */
void files_restore(void);

#endif
