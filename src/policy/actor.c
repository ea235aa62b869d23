#include "policy/actor.h"

#include <string.h>

static const char *const guards[GUARD_COUNT] = {"open",	    "read",  "admin",
						"settings", "board", "known"};
static const char *const sources[SOURCE_COUNT] = {"none",    "local_implicit", "board_key",
						  "session", "agent_key",      "agent_jwt"};

const char *guard_name(enum guard g)
{
	return guards[g];
}

const char *actor_source_name(enum actor_source s)
{
	return sources[s];
}

bool actor_is_admin(const struct actor *a)
{
	return a->type == ACTOR_BOARD && (a->source == SOURCE_LOCAL || a->admin);
}

const char *actor_id(const struct actor *a)
{
	return a->type == ACTOR_AGENT ? a->agent_id : a->type == ACTOR_BOARD ? a->user_id : "";
}

const char *guard_denies(enum guard g, const struct actor *a)
{
	bool board = a->type == ACTOR_BOARD;

	switch (g) {
	case GUARD_OPEN:
		return NULL;
	case GUARD_READ:
		if (!board)
			return "Board access required";
		return actor_is_admin(a) || a->companies_len
			   ? NULL
			   : "Company membership or instance admin access required";
	case GUARD_ADMIN:
		if (!board)
			return "Instance environment management is restricted to board operators";
		return actor_is_admin(a) ? NULL : "Instance admin access required";
	case GUARD_SETTINGS:
		if (!board)
			return "Board access required";
		return actor_is_admin(a) ? NULL : "Instance admin access required";
	case GUARD_BOARD:
		return board ? NULL : "Board access required";
	case GUARD_KNOWN:
		return a->type != ACTOR_NONE ? NULL : "Authentication required";
	default:
		return "Access denied";
	}
}

static const struct actor_company *membership(const struct actor *a, const char *company_id)
{
	for (size_t i = 0; i < a->companies_len; i++)
		if (strcmp(a->companies[i].id, company_id) == 0)
			return &a->companies[i];
	return NULL;
}

bool actor_in_company(const struct actor *a, const char *company_id)
{
	if (a->type == ACTOR_AGENT)
		return strcmp(a->company_id, company_id) == 0;
	return a->type == ACTOR_BOARD &&
	       (a->source == SOURCE_LOCAL || membership(a, company_id) != NULL);
}

bool actor_is_viewer(const struct actor *a, const char *company_id)
{
	const struct actor_company *m = membership(a, company_id);

	return m && m->viewer;
}

bool actor_needs_origin(const struct actor *a, bool said)
{
	/* Programs of the local board name no origin; what does comes from a page, and from which one matters. */
	return a->source == SOURCE_SESSION || (said && a->source == SOURCE_LOCAL);
}
