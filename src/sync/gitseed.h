/*
 * gitseed.h: the repository that a sandbox sees: a clean .git made anew.
 *
 * Carried: the objects that the policy names (shallow: the commit sent; full: the history of HEAD,
 * all branches and tags), the branch name, an index equal to HEAD's tree with the host's stat
 * fields where git knew the file to be unmodified (so the first `git status` inside is fast),
 * user.name and user.email, and the remotes' URLs without user, password, query and fragment
 * (F25). Not carried: hooks, any other config, credentials, reflogs, the staged state (a staged
 * change shows as an unstaged one inside), submodules' repositories, LFS objects.
 *
 * Tracked files that did not travel are marked skip-worktree, so that a commit made inside does
 * not delete them. Seeds are cached: same HEAD, refs (full), config and held paths, same seed.
 *
 * Objects are packed by the hardened host git straight from the object store (no
 * transport, no upload-pack, so alternates and partial clones work; what a partial clone lacks is
 * left out). The host repository is not written.
 */
#ifndef AIRLOCK_SYNC_GITSEED_H
#define AIRLOCK_SYNC_GITSEED_H

#include <sys/types.h>

#include "base/err.h"
#include "sync/git.h"
#include "sync/store.h"
#include "sync/sync_in.h"
#include "wire/manifest.h"

struct gitseed_opts {
	struct store *store;
	const struct git_repo *git;
	const struct git_config *config; /* as the user and the repository have it */
	enum git_policy policy;		 /* not GIT_NONE */
	int root_fd;			 /* the workspace = the work tree's top */
	uid_t owner;
	gid_t group;
	const uint8_t *held; /* MANIFEST_HASH bytes: fingerprint of what rules kept out */
};

/* Name below <store>/git of the seed for these options; nothing is made. */
int gitseed_key(const struct gitseed_opts *o, char key[STORE_SEED_MAX], struct err *e);
/* Makes the seed `key` unless it is there. manifest: of the stack the seed goes with. */
int gitseed_make(const struct gitseed_opts *o, const struct manifest *manifest, const char *key,
		 struct err *e);
/*
 * A remote's URL fit for a sandbox, heap; NULL: not carried. http, https: user, query and fragment
 * go. ssh, git: password, query, fragment go. user@host:path is kept, anything else (local
 * paths, user:password@host:path, ext::) is not carried.
 */
char *gitseed_clean_url(const char *url);

#endif
