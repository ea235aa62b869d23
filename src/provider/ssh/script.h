/*
 * script.h: what the remote shell runs to bring the guest up, and the lines that it says.
 *
 * One line for the login shell of the account, whichever it is: `exec /bin/sh -c '...'`, with nothing in it that sh, bash, zsh,
 * fish, csh or busybox take differently. No profile is sourced by us. It reads its nonce and its parameters from standard input, so
 * they are in nobody's process list; lines of ours carry the nonce, whatever else is printed before is noise.
 *
 *   -> <nonce> <sha256> <size> <system>-<processor>
 *   <- airlock <nonce> have | need | fail <word> <detail>
 *   -> go               (after "need": then the program's bytes, and nothing until the answer)
 *   <- airlock <nonce> ready | need | fail <word> <detail>     (need: somebody removed it meanwhile, 'airlock env clean'; at most
 *                                                               SCRIPT_TURNS times in all)
 *
 * The guest lies in ${XDG_CACHE_HOME:-~/.cache}/airlock/guest-<sha256>: a directory of the account alone (0700, its
 * owner's, no link), a file that is checked by size and hash and put there by one rename.
 */
#ifndef AIRLOCK_PROVIDER_SSH_SCRIPT_H
#define AIRLOCK_PROVIDER_SSH_SCRIPT_H

#include "base/cursor.h"

#define SCRIPT_NONCE 32 /* hex digits */
#define SCRIPT_TURNS 3

enum script_word {
	SCRIPT_NOTHING, /* not yet */
	SCRIPT_HAVE,
	SCRIPT_NEED,
	SCRIPT_READY,
	SCRIPT_FAIL, /* detail: what the script says */
};

/* For ssh's command. Static. */
const char *script_command(void);
/*
 * Looks for our next line in p[0..n). ret_used: bytes up to and with it, or up to where a later line may begin.
 */
enum script_word script_find(const char *p, size_t n, const char *nonce, size_t *ret_used,
			     struct view *ret_detail);

#endif
