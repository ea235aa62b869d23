/*
 * activity.h: rows of the activity log, and the instance's settings.
 *
 * An event of the instance is written once for each company. Details are a JSON object that the caller has kept free
 * of values of configuration and of secrets.
 */
#ifndef AIRLOCK_STORE_ACTIVITY_H
#define AIRLOCK_STORE_ACTIVITY_H

#include "base/id.h"
#include "store/store.h"

struct activity_row {
	const char *actor_type, *actor_id; /* "user", "agent", "system" */
	const char *agent_id, *run_id;	   /* NULL: none */
	const char *action, *entity_type, *entity_id;
	const char *details;
};

/* company_id NULL: every company. */
int activity_add(struct db *s, const char *company_id, const struct activity_row *a, struct err *e);
/* Newest first, at most `limit`; the row's texts live during the call. */
int activity_each(struct db *s, const char *company_id, int64_t limit,
		  int (*cb)(void *arg, int64_t id, int64_t at_ns, const struct activity_row *a),
		  void *arg, struct err *e);

#define SETTING_DEFAULT_ENVIRONMENT "defaultEnvironmentId"
#define SETTING_INSTANCE_ID "instanceId"

/* "" when it is not set; too long is cut. */
int setting_get(struct db *s, const char *key, char *ret, size_t n, struct err *e);
/* value NULL or "": not set any more. */
int setting_put(struct db *s, const char *key, const char *value, struct err *e);

#endif
