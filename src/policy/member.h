/*
 * member.h: may this member of a sandbox's outbound stream reach the host? Part of door 1.
 *
 * Pure judgement, no file system: wire/tar.h has read one header, this file sees the stream as a
 * whole and, through callbacks, the links of the host. Three verdicts:
 *
 *   accept   the member may be staged
 *   refuse   it is not materialised; `rule` goes into the report, the rest goes on
 *   hostile  the stream ends here, nothing of it is published
 *
 * hostile:  through_link     below something the stream declared as not a directory
 *           type_change      the same path again as another kind; a directory with children as one
 *           duplicate        the same path again where the last cannot simply win (the same symlink can)
 *           hardlink_target  to anything but an earlier regular file of the same stream
 *           reserved_kind    .paperclip-repositories as something else than a directory
 *           limit            PATH_MEMBER_MAX, MEMBERS_MAX, MEMBER_PATHS_MAX, MEMBER_LINK_BYTES_MAX, MEMBER_LINK_STEPS_MAX
 * refuse:   special_file     device, FIFO, socket: never made, not even by root
 *           git_metadata     .git in any spelling, at any depth: code runs from there; a symlink
 *                            that leads there
 *           reserved_name    .airlock*, .paperclip-runtime, .paperclip-upload-*
 *           link_escape      a symlink whose target is absolute, leads out of the root or could
 *                            when another entry stays out: one that has ".." after a name
 *           link_hops        a symlink over more than LINK_HOPS_MAX links
 *           hardlink_refused to a file that was itself refused
 *           case_collision   differs from an earlier path only by case (case-blind root only)
 *
 * A hostile finding is looked for before a reason to refuse, so a refused name cannot carry an
 * attack along. With `strict` every refusal is hostile (the rule keeps its name).
 *
 * Memory: 8 bytes a path (plus slack of a hash table), the text of symlinks; both bounded. Paths
 * are remembered as 60 bits of a keyed hash: with a secret key nobody can make two collide, and at
 * the limit of the table an accident has odds of 1 in 250,000 and ends in a wrong `hostile`. Where an
 * accident could open something (hard links) the consumer opens the staged file by its exact path.
 *
 * What it does not do: the host tree may change while a run goes on, so publishing resolves every
 * path again with openat2 and follows no link, whatever the verdict was. On a case-blind root two
 * ordinary names collide by ASCII letters only; names that must not come in are recognised in every spelling
 * (member_name.c).
 */
#ifndef AIRLOCK_POLICY_MEMBER_H
#define AIRLOCK_POLICY_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/tar.h"

enum member_verdict {
	MEMBER_ACCEPT = 0,
	MEMBER_REFUSE,
	MEMBER_HOSTILE,
};

#define MEMBER_KEY 16

struct member_opts {
	bool strict;
	bool fold_case;		 /* the root is on a case-blind file system */
	uint8_t key[MEMBER_KEY]; /* random, from the caller; fixed in tests */
	/*
	 * Target of the symlink at member path `path` (NUL-terminated) below the root, not following
	 * links on the way: its length (out holds max bytes, no NUL needed), 0 if there is no
	 * symlink, negative errno if that cannot be told: a rule of the file system (-EACCES, -ELOOP)
	 * gets the link being judged refused, a lack of the machine (-ENOMEM, -EMFILE, -ENFILE, -EIO)
	 * gives no verdict and is what members_judge and members_finish then return.
	 * May be NULL: an empty root.
	 */
	long (*readlink_at)(void *arg, const char *path, char *out, size_t max);
	/*
	 * 1 if the baseline has exactly this symlink: it came from the host, nothing will be
	 * written, and so it may point anywhere; 0 if not; negative errno: no verdict. May be NULL.
	 */
	int (*unchanged_link)(void *arg, struct view path, struct view target);
	void *arg;
};

struct members; /* opaque; members_new/members_free */

/* 0 or -ENOMEM. */
int members_new(const struct member_opts *o, struct members **ret);
void members_free(struct members *m);

/*
 * Judges the next member, in stream order. Returns an enum member_verdict or -ENOMEM; *ret_rule is
 * NULL for accept, else a static string. After a hostile verdict every further call is hostile.
 * The root itself ("" as path) is accepted: its metadata is the consumer's to ignore.
 */
int members_judge(struct members *m, const struct tar_member *t, const char **ret_rule);

/*
 * At the end of the stream: judges the accepted symlinks once more, because a link that came later
 * can bend an earlier one. Calls refuse for each that now leads out; a non-zero return stops and is
 * passed on. 0, MEMBER_HOSTILE (strict, after the first call; or the
 * limit of steps), what refuse returned.
 * The views live until members_free.
 */
int members_finish(struct members *m, int (*refuse)(void *arg, struct view path, const char *rule),
		   void *arg);

/* Bytes of memory held, for the tests of the limits. */
size_t members_memory(const struct members *m);

/* Permission bits for the host: 0777 for files; directories always with 0700. Never 07000. */
uint32_t member_mode(const struct tar_member *t);

/* The name rules alone, for other doors: a refusal's rule for any segment of path, or NULL. */
const char *member_name_rule(const char *path, size_t n);
/* True if the segment is .git for git on any file system (case, HFS+, NTFS, 8.3, ext4 with casefold). */
bool member_is_dot_git(const char *segment, size_t n);
/* True if some file system takes the segment for `name`, small ASCII letters. */
bool member_is_folded(const char *segment, size_t n, const char *name);
/* The same of several, NULL-ended: which of them, or -1. */
int member_is_folded_of(const char *segment, size_t n, const char *const *names);

#endif
