/*
 * manifest.h: the record of exactly the bytes that were sent into a sandbox (baseline B).
 *
 * Text, one entry a line, sorted by the raw bytes of the path:
 *
 *   airlock-manifest 1
 *   d <mode> <path>
 *   f <mode> <size> <mtime_ns> <hash> <layer> <ino> <ctime_ns> <path>
 *   l <target> <path>
 *   D <mode> <host mode> <path>
 *   F <mode> <host mode> <size> <mtime_ns> <hash> <content> <path>
 *   L <target> <path>
 *   end <entries>
 *
 * mode: octal, 0777. hash: BLAKE2b-256 of the content, 64 hex digits (libsodium's
 * crypto_generichash). layer: number of the base layer that holds the bytes. ino and
 * ctime_ns: of the host file when it was read, so "unchanged on the host" is one stat. Path
 * and target: bytes <= 0x20, >= 0x7f and '%' are %XX. The last line proves completeness.
 *
 * Capitals: only in the baseline of a kept sandbox, after a publish. The sandbox's own state, as it
 * was sent, is what its next changes are compared with; `mode` is the sandbox's, `host mode` what the
 * host was left with (umask, a conflict). content: where its bytes are for text merges
 * (sync/unpack_baseline.h).
 *
 * A reader maps the file and finds a path by bisection, so memory does not grow with the tree.
 */
#ifndef AIRLOCK_WIRE_MANIFEST_H
#define AIRLOCK_WIRE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/limits.h"

#define MANIFEST_HASH 32

struct manifest_entry {
	char kind; /* 'd', 'f', 'l' */
	bool
	    sandbox; /* a capital line: host_mode and content count, layer, ino and ctime_ns do not */
	uint32_t mode;
	uint32_t host_mode; /* 'd', 'f' */
	uint32_t layer;
	uint64_t content;
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	uint64_t ino;
	uint8_t hash[MANIFEST_HASH];
	size_t path_len, target_len;
	char path[PATH_MEMBER_MAX + 1];	  /* decoded, NUL-terminated */
	char target[LINK_TARGET_MAX + 1]; /* 'l' only */
};

struct manifest; /* read-only, mapped */

/* Checks first and last line. fd stays the caller's. 0; -EPROTO with text; errno. */
int manifest_open(int fd, struct manifest **ret, struct err *e);
void manifest_free(struct manifest *m);
uint64_t manifest_count(const struct manifest *m);
/* 1 found, 0 not there, -EPROTO broken line. */
int manifest_find(const struct manifest *m, const char *path, size_t n, struct manifest_entry *ret);
/* Walks in order; *pos starts as 0. 1 entry, 0 end, -EPROTO. */
int manifest_next(const struct manifest *m, size_t *pos, struct manifest_entry *ret);
/* The same, of the entries that are the sandbox's own. */
int manifest_next_sandbox(const struct manifest *m, size_t *pos, struct manifest_entry *ret);
/* *pos so that manifest_next yields `path` or what comes after it. 0 or -EPROTO. */
int manifest_seek(const struct manifest *m, const char *path, size_t n, size_t *pos);
/* Entries in [from, to) of positions. */
uint64_t manifest_lines(const struct manifest *m, size_t from, size_t to);
/*
 * A walk that goes on from *mark to pos and not back: what lies between need not stay in memory, and comes back
 * from the file should it be asked for. Call it after each step; it acts every few MiB. *mark starts as 0.
 */
void manifest_pass(const struct manifest *m, size_t *mark, size_t pos);
/* What a walk knows of a file or directory. */
struct manifest_stat {
	char kind; /* 'd', 'f' */
	uint32_t mode;
	uint64_t size, ino;
	int64_t mtime_ns, ctime_ns;
	const char *path;
	size_t path_len;
};
/*
 * Is the entry at *pos this one? Then *pos goes past it. Compares the line as it stands: hash and
 * layer are not read, and a path with escapes or a line of unusual form is left (false) to
 * manifest_next, which judges lines.
 */
bool manifest_skip_same(const struct manifest *m, size_t *pos, const struct manifest_stat *s);
/* *pos so that manifest_next yields the first entry below directory dir ("" = all). */
void manifest_seek_below(const struct manifest *m, const char *dir, size_t n, size_t *pos);

/* Writer: entries must come in strictly rising path order (else -EINVAL). */
struct manifest_writer {
	int fd; /* borrowed */
	struct buf out;
	uint64_t count;
	char last[PATH_MEMBER_MAX + 1];
	size_t last_len;
};
int manifest_writer_init(struct manifest_writer *w, int fd, struct err *e);
int manifest_writer_add(struct manifest_writer *w, const struct manifest_entry *m, struct err *e);
/*
 * The lines [from, to) of m (positions as of manifest_next) as they are, `entries` of them. Order
 * is the caller's care: what differs in 20 of 20,000 entries is not worth 20,000 encodings.
 */
int manifest_writer_copy(struct manifest_writer *w, const struct manifest *m, size_t from,
			 size_t to, uint64_t entries, struct err *e);
/* Writes the last line and flushes; the caller syncs and renames. */
int manifest_writer_finish(struct manifest_writer *w, struct err *e);
void manifest_writer_done(struct manifest_writer *w);

/* Path order of the manifest: memcmp, the shorter first. */
int manifest_path_cmp(const char *a, size_t na, const char *b, size_t nb);

#endif
