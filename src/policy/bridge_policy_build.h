/*
 * bridge_policy_build.h: how a bridge policy is put together; for bridge_policy*.c alone.
 *
 * Each step judges what it takes, so that a table in this program and a file meet the same rules. `where`
 * names the place in messages ("routes[3].request_headers[0]"). Names are taken in any case.
 */
#ifndef AIRLOCK_POLICY_BRIDGE_POLICY_BUILD_H
#define AIRLOCK_POLICY_BRIDGE_POLICY_BUILD_H

#include "policy/bridge_policy.h"

enum policy_list { LIST_REQUEST, LIST_RESPONSE, LIST_TOKEN };

/* One reference, default limits, nothing allowed. */
int policy_new(const char *name, struct bridge_policy **ret, struct err *e);
int policy_add_header(struct bridge_policy *p, enum policy_list l, const char *where,
		      const char *name, struct err *e);
int policy_deny_query(struct bridge_policy *p, const char *where, const char *name, struct err *e);
/* spec: "METHOD[,METHOD...] PATTERN". */
int policy_add_route(struct bridge_policy *p, const char *where, const char *id, const char *spec,
		     struct route **ret, struct err *e);
/* A request header of this route alone. */
int policy_add_route_header(struct bridge_policy *p, struct route *r, const char *where,
			    const char *name, struct err *e);
/* value: "{run}", "{agent}", "{company}", "{task}", or fixed text without braces. */
int policy_add_identity(struct bridge_policy *p, const char *where, const char *name,
			const char *value, struct err *e);
int policy_set_credential(struct bridge_policy *p, const char *header, const char *prefix,
			  struct err *e);
int policy_add_upstream(struct bridge_policy *p, const char *name, const char *origin,
			struct err *e);
/* Last: compiles the routes and checks what only the whole can show. */
int policy_finish(struct bridge_policy *p, struct err *e);

#endif
