/*
 * tenant.h: rows of companies, users, memberships, agents and projects: whom the API knows.
 *
 * Names are unique (agents and projects: in their company) and are what an operator types; ids are UUIDs. A company
 * that is removed takes its agents, projects, secrets, leases and activity with it.
 */
#ifndef AIRLOCK_STORE_TENANT_H
#define AIRLOCK_STORE_TENANT_H

#include <stdbool.h>

#include "base/id.h"
#include "store/store.h"

#define TENANT_NAME_MAX 120 /* bytes of a name of a company, user, agent or project */

struct company_row {
	char id[UUID_LEN + 1], name[TENANT_NAME_MAX + 1];
	int64_t created_ns;
};

struct user_row {
	char id[UUID_LEN + 1], name[TENANT_NAME_MAX + 1];
	bool admin;
	int64_t created_ns;
};

struct membership_row {
	char company_id[UUID_LEN + 1], user_id[UUID_LEN + 1];
	char role[8], status[12];
};

struct agent_row {
	char id[UUID_LEN + 1], company_id[UUID_LEN + 1], name[TENANT_NAME_MAX + 1];
	char adapter[64], status[20];
	char user_id[UUID_LEN + 1], environment_id[UUID_LEN + 1]; /* "": none */
	bool configure; /* may change other agents of its company */
	int64_t created_ns, updated_ns;
};

struct project_row {
	char id[UUID_LEN + 1], company_id[UUID_LEN + 1], name[TENANT_NAME_MAX + 1];
	char environment_id[UUID_LEN + 1];
	int64_t created_ns, updated_ns;
};

/* 0, or ERR_INVALID: empty, too long, not UTF-8 or with control characters. `what`: "company". */
int tenant_check_name(const char *what, const char *name, struct err *e);

/* Each *_add fills id and times of the row. ERR_EXISTS when the name is taken. */
int company_add(struct db *s, struct company_row *c, struct err *e);
/* By id or by name. */
int company_find(struct db *s, const char *word, struct company_row *ret, struct err *e);
int company_exists(struct db *s, const char *id, bool *ret, struct err *e);
/* The only company of the instance, or "" when there are none or several. */
int company_only(struct db *s, char ret[UUID_LEN + 1], struct err *e);
/* ERR_CONFLICT while it has leases that are not over. */
int company_idle(struct db *s, const char *id, struct err *e);
int company_remove(struct db *s, const char *id, struct err *e);
int company_each(struct db *s, int (*cb)(void *arg, const struct company_row *c), void *arg,
		 struct err *e);

int user_add(struct db *s, struct user_row *u, struct err *e);
int user_find(struct db *s, const char *word, struct user_row *ret, struct err *e);
int user_set_admin(struct db *s, const char *id, bool admin, struct err *e);
int user_remove(struct db *s, const char *id, struct err *e);
int user_each(struct db *s, int (*cb)(void *arg, const struct user_row *u), void *arg,
	      struct err *e);

/* Adds it or changes its role; role "": removes it. */
int membership_put(struct db *s, const char *company_id, const char *user_id, const char *role,
		   struct err *e);
/* Active memberships of active users only. */
int membership_each(struct db *s, const char *user_id,
		    int (*cb)(void *arg, const struct membership_row *m), void *arg, struct err *e);

/* Role of an active membership: 1, or 0 none. */
int membership_role(struct db *s, const char *company_id, const char *user_id, char role[8],
		    struct err *e);

int agent_add(struct db *s, struct agent_row *a, struct err *e);
/* 1 and the row, 0 none. */
int agent_get(struct db *s, const char *id, struct agent_row *ret, struct err *e);
/* By id, or by name within a company. */
int agent_find(struct db *s, const char *company_id, const char *word, struct agent_row *ret,
	       struct err *e);
/* Writes everything but id, company and creation. */
int agent_save(struct db *s, struct agent_row *a, struct err *e);
/* Its status alone: what else was changed meanwhile stays. 0, or ERR_NOT_FOUND. */
int agent_set_status(struct db *s, const char *id, const char *status, struct err *e);
int agent_each(struct db *s, const char *company_id,
	       int (*cb)(void *arg, const struct agent_row *a), void *arg, struct err *e);

int project_add(struct db *s, struct project_row *p, struct err *e);
int project_get(struct db *s, const char *id, struct project_row *ret, struct err *e);
int project_save(struct db *s, struct project_row *p, struct err *e);
int project_each(struct db *s, const char *company_id,
		 int (*cb)(void *arg, const struct project_row *p), void *arg, struct err *e);

#endif
