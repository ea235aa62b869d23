/*
 * quarantine_convert.h: what git would convert between its objects and the work tree, so that other bytes are no difference.
 *
 * Policy: attributes are data. git reads them (check-attr) from the .gitattributes of the work tree and from info/attributes
 * of the repository, and runs no filter (S1-05). They may be a sandbox's, so they only decide in which words a file is named:
 * a file is the same by them alone when its lines end otherwise and nothing else of it differs.
 *
 * Not read: attributes of the account or the machine (core.attributesFile), which no sandbox has.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_CONVERT_H
#define AIRLOCK_SYNC_QUARANTINE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "sync/git.h"

enum quarantine_convert {
	CONVERT_NOTHING,
	CONVERT_LINES, /* CRLF here is LF in an object */
	CONVERT_BYTES, /* a filter, another encoding, ident: cannot be told without doing it */
};

/* What the user's and the repository's configuration say. */
struct quarantine_settings {
	bool read;
	bool autocrlf;	 /* where no attribute says otherwise */
	bool plain_mode; /* core.fileMode=false: the exec bit here means nothing */
};

/* Reads them unless they were. What cannot be read is as git has it unasked. */
void quarantine_settings_read(const struct git_repo *host, struct quarantine_settings *s);
/*
 * Fills ret[i] for paths[i], i < n. 0 or negative errno: nothing of ret is of use; -EINVAL where git would wait in a FIFO that has
 * such a file's name. top: the work tree.
 */
int quarantine_convert(const struct git_repo *host, const struct quarantine_settings *s, int top,
		       const char *const *paths, size_t n, enum quarantine_convert *ret);

#endif
