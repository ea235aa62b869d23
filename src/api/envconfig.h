/*
 * envconfig.h: configuration of environments, judged per driver (api.md 4), and their variables (2.6).
 *
 * Drivers: local (any object), ssh, sandbox with provider `native`. Plugins are refused until there is something that can
 * ask one. A value that is a secret is never kept in a configuration: it becomes a company secret, and a
 * reference stands in its place.
 */
#ifndef AIRLOCK_API_ENVCONFIG_H
#define AIRLOCK_API_ENVCONFIG_H

#include "api/call.h"

enum config_use {
	CONFIG_PERSIST, /* to be stored: raw secrets become references */
	CONFIG_PROBE,	/* a draft: looked at and forgotten */
};

/* Answers 422 and returns NULL, or the normalised object (owned). *ret_key (owned, may be NULL): raw private key. */
json_t *envconfig_normalise(struct call *c, const char *driver, json_t *config, enum config_use use,
			    char **ret_key);
/* A reference to a secret, as it is kept (owned), or NULL: answered, as a fault of that member. */
json_t *envconfig_secret_ref(struct call *c, const char *member, json_t *v);
/* Normalised variables (owned), or NULL: answered. company: whose secrets may be referred to. */
json_t *envconfig_variables(struct call *c, json_t *vars, const char *company);
/*
 * Server-owned members of metadata: 0, or 1: answered 422. What is dropped silently is dropped from
 * *metadata (owned by the caller; may be NULL).
 */
int envconfig_metadata(struct call *c, json_t *metadata);
/* "native" for a sandbox of ours, "ssh", "local". */
const char *envconfig_provider(const char *driver, json_t *config);

#define META_PROOF "_paperclipRunnerPlatform"
#define META_ARCHIVE "_paperclipManagedArchiveToken"
#define META_MANAGED "managedByPaperclip"
#define META_MANAGED_K8S "managedKubernetesSandbox"

#endif
