/*
 * sshenv.h: environments of driver ssh (api.md 4.2): another machine, as the account that logs in there. Runs in jobs only.
 *
 * Policy: the host key is checked against the environment's own known hosts, or the daemon user's where it has none; only
 * strictHostKeyChecking false switches that off, and a probe says so. The private key is a secret: it is opened when it is
 * used, each use is written down, and it lies in this process's memory alone (provider/ssh/identity.h). No configuration of the
 * daemon's user (~/.ssh/config) holds. Nothing isolates what runs there.
 */
#ifndef AIRLOCK_API_SSHENV_H
#define AIRLOCK_API_SSHENV_H

#include <jansson.h>

#include "api/leases.h"
#include "engine/state.h"
#include "provider/ssh/identity.h"
#include "store/lease.h"

struct sshenv {
	char **words; /* owned: provider/ssh/target.h */
	struct ssh_identity key;
	char *identity; /* owned: "ENVIRONMENT=/PATH", or NULL */
	char *identities[2];
};

#define SSHENV_INIT ((struct sshenv){.key = SSH_IDENTITY_INIT})

struct sshenv_use {
	const char *company_id, *environment_id; /* "": a draft */
	const char *consumer, *actor; /* who, for what: written down with the secret's use */
	const char *key;	      /* of a draft; NULL */
};

/* USER@HOST:PORT:DIRECTORY of a configuration, as the engine counts runs there; heap, or NULL. Pure. */
char *sshenv_place(const json_t *config, struct err *e);
/* ERR_INVALID, ERR_PERMISSION (the secret), ... */
int sshenv_open(struct sshenv *s, struct job_ctx *x, const struct sshenv_use *u,
		const json_t *config, struct err *e);
void sshenv_done(struct sshenv *s);
#define _cleanup_sshenv_ __attribute__((cleanup(sshenv_done)))

/* Makes the directory there, enters it, and says where that is. */
struct sshenv_ready {
	char *cwd; /* owned */
	int code;  /* of ssh; -1 */
};
int sshenv_ready(const struct sshenv *s, struct sshenv_ready *ret, struct err *e);

/* Keys of what dead runs left on other machines, for a sweep: NAME=/PATH words. */
struct sshenv_keys {
	struct sshenv *v;
	size_t n;
	char **words; /* borrowed of v */
};
void sshenv_keys_open(struct sshenv_keys *k, struct job_ctx *x);
/* The key of one lease, whatever its state, for who recovers it. */
void sshenv_keys_of(struct sshenv_keys *k, struct job_ctx *x, const struct lease_row *l);
void sshenv_keys_done(struct sshenv_keys *k);

/* Job: {config, environmentId, companyId, actor, key}: a probe's answer. */
json_t *job_probe_ssh(struct job_ctx *x, const json_t *request);
/* From a row in work to an active one: nothing is kept there, so nothing is to be torn down. */
int sshenv_lease(struct job_ctx *x, struct envlease_row *l, struct err *e);

#endif
