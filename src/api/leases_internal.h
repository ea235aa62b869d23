/* leases_internal.h: private to leases.c, leases_wait.c and leases_end.c: calls that wait for jobs of leases. */
#ifndef AIRLOCK_API_LEASES_INTERNAL_H
#define AIRLOCK_API_LEASES_INTERNAL_H

#include "api/leases.h"

/* What a call waits for, and what happens then. Freed by its end. */
struct lease_wait {
	struct call *call;
	char id[UUID_LEN + 1];
	const char *action; /* of the activity log; NULL: none */
	unsigned status;
	bool made; /* the row was made for this: what fails leaves it to the sweep */
	void (*next)(struct call *c, int64_t n);
};

/* The lease of the path, of a company that the actor is of: 0, or 1: answered. */
int lease_find(struct call *c, struct envlease_row *l);
/* Starts the job; what is copied. API_LATER or answered. */
int lease_later(struct call *c, const struct lease_wait *what, json_t *request);
/* A text of the body, or NULL. */
const char *lease_body_text(const struct call *c, const char *name);
/* Whether leases of that provider are rows alone. */
bool lease_nothing_made(const char *provider);
void lease_log(struct call *c, const char *action, const struct envlease_row *l);

#endif
