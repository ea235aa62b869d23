/*
 * quarantine_paths.h: may the paths of a sandbox's commits lie in the user's repository? Part of door 1.
 *
 * Policy: what door 1 refuses as a file does not come in as a commit either, because a checkout, a stash or
 * a reset, which nobody takes for dangerous, would write it. Every path that any of the commits adds or changes is judged, not
 * those of the last one alone:
 *
 *   its name       policy/member.h: .git in any spelling, names that Airlock and Paperclip keep; size and depth as for members
 *   a symlink      policy/member.h: must stay inside. Each is judged for itself against the links of the work tree: one that
 *                  climbs first and names afterwards stays inside whatever becomes of the others
 *   a repository   policy/gitlayout.h, as for streams: orders for git where a layout lies, and a layout
 *                  that would bring such files of the host to life. All commits count together with the work tree,
 *                  the commit that was sent and older ones that they build on: a checkout of one leaves what is untracked
 *                  in the next, and a merge unites what two commits have
 *
 * Host-executable data (policy/hostexec.h) comes in and is named.
 *
 * Pure but for looks at the work tree. Not done here: git's own checks of objects (quarantine.c); what other commits of the
 * host, checked out later, have beside these paths.
 */
#ifndef AIRLOCK_SYNC_QUARANTINE_PATHS_H
#define AIRLOCK_SYNC_QUARANTINE_PATHS_H

#include <stddef.h>
#include <stdint.h>

struct commit_paths;

/* host_fd: the top of the work tree, borrowed. 0 or -ENOMEM. */
int commit_paths_new(int host_fd, struct commit_paths **ret);
void commit_paths_free(struct commit_paths *p);

/*
 * First each path (NUL-terminated, relative). Then, if commit_paths_ask says so or there are older commits of the host that
 * these build on, commit_paths_came for the paths of each of those (nr: 1, 2, ...), and after them commit_paths_had for those
 * of the commit that was sent. Then each path once more in commit_paths_layout (*ret_dir: bytes of it that name the directory).
 * *ret_rule NULL: it may; else a static rule. 0, or -ENOMEM, -E2BIG (COMMIT_DIRS_BYTES_MAX).
 */
int commit_paths_name(struct commit_paths *p, const char *path, const char **ret_rule);
/* target of n bytes of the symlink at path, which may be of any length; -E2BIG: MEMBER_LINK_STEPS_MAX. */
int commit_paths_link(struct commit_paths *p, const char *path, const char *target, size_t n,
		      const char **ret_rule);
int commit_paths_ask(const struct commit_paths *p);
void commit_paths_had(struct commit_paths *p, const char *path);
int commit_paths_came(struct commit_paths *p, const char *path, size_t nr);
void commit_paths_layout(struct commit_paths *p, const char *path, const char **ret_rule,
			 size_t *ret_dir);

/*
 * At last: a directory of which older commits make a repository with orders together with the rest, though no path of it is new
 * (a merge). Its *ret_n bytes, or NULL: none.
 */
const char *commit_paths_united(struct commit_paths *p, size_t *ret_n);

/* Flags a path that has host-executable data, as commit_paths_name does. 0, -ENOMEM. */
int commit_paths_flag(struct commit_paths *p, const char *path);
/* Paths with host-executable data, each counted once up to some thousand, and a few of them, printable. */
uint64_t commit_paths_flagged(const struct commit_paths *p, const char **ret_names);
uint64_t commit_paths_shown(const struct commit_paths *p); /* how many of them */

#endif
