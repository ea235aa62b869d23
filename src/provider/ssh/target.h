/*
 * target.h: which machine, and how ssh gets there.
 *
 * Two forms. Words, as a person or an environment gives them and as a lease remembers them: the first is
 * [USER@]HOST[:PORT]:/PATH, the others "key=FILE", "known-hosts=FILE", "config=FILE", "jump=HOST", "guest=auto|never|always",
 * "base=none", "compress=yes", "max-runs=N", "grace=SECONDS". And the struct.
 * No word can be taken for an option of ssh: a host or a user that begins with '-' or holds anything but the characters
 * of names is refused. What is left out is ssh's own business: ~/.ssh/config, known_hosts and the agent hold for it.
 * No secret is in here, only the names of files.
 */
#ifndef AIRLOCK_PROVIDER_SSH_TARGET_H
#define AIRLOCK_PROVIDER_SSH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Whether our guest program is used there: where it runs; never; or nothing is done without it. */
enum ssh_guest { GUEST_AUTO, GUEST_NEVER, GUEST_ALWAYS };

struct ssh_target {
	char *user, *host,
	    *path;     /* owned; user NULL: ssh's default. path: absolute, normal, not "/" */
	uint16_t port; /* 0: ssh's default */
	char *key, *known_hosts, *config, *jump; /* owned, may be NULL; files are absolute */
	char *secret; /* owned: whose key it is, to be found among sandbox_spec.identities; NULL */
	enum ssh_guest guest;
	bool compress;	   /* ssh compresses what it sends; else as its configuration says */
	unsigned max_runs; /* that go on there at once, of one state directory; 0: no limit */
	unsigned
	    grace_s; /* a command goes on there so long without its connection; 0: it ends with it */
	bool no_base;  /* no tree is kept there for the next run */
	bool any_host; /* the host key is not looked at: who asked for that was told */
	char *label;   /* owned: "user@host port 22", for messages */
};

/* Judges all of them. -EINVAL with text, -ENOMEM. */
int ssh_target_parse(char *const *words, struct ssh_target *ret, struct err *e);
void ssh_target_done(struct ssh_target *t);
#define _cleanup_ssh_target_ __attribute__((cleanup(ssh_target_done)))
/* Of a target with a secret, its key: "NAME=/PATH" words. ERR_UNAVAILABLE: none is there. */
int ssh_target_identity(struct ssh_target *t, char *const *identities, struct err *e);
/* Files are there and, a key, readable by their owner alone: in good time and in words. */
int ssh_target_files(const struct ssh_target *t, struct err *e);
/*
 * The command line of ssh that runs `command` there; *ret is a heap vector. control: where the shared connection's
 * socket is, NULL: none.
 */
int ssh_target_argv(const struct ssh_target *t, const char *control, const char *command,
		    char ***ret, struct err *e);
/* The environment for it: what ssh and its proxy commands need, nothing of a run. */
int ssh_target_env(char ***ret, struct err *e);

#endif
