/*
 * actor.h: who asks, and the one table of who may ask what.
 *
 * Pure. An actor is resolved once per request, before routing (api/authenticate.h). A guard is judged before
 * anything is looked up, so a denial says nothing about what exists.
 *
 *   OPEN      anybody
 *   READ      a board actor that is the implicit local one, an instance administrator, or a member of a company
 *   ADMIN     a board actor that is the implicit local one or an instance administrator
 *   SETTINGS  as ADMIN, in other words
 *   BOARD     any board actor
 *   KNOWN     any actor but none; what exactly it may do is decided by what it asks for (assignment)
 *
 * What it does not do: company checks of single objects. Being an administrator of the instance does not make a
 * member of a company; only actor_in_company speaks of that.
 */
#ifndef AIRLOCK_POLICY_ACTOR_H
#define AIRLOCK_POLICY_ACTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/id.h"

#define ACTOR_COMPANIES_MAX 256 /* memberships of one user that count: further ones give nothing */
#define ACTOR_RUN_MAX 128

enum actor_type { ACTOR_NONE, ACTOR_BOARD, ACTOR_AGENT };
enum actor_source {
	SOURCE_NONE,
	SOURCE_LOCAL, /* no credential, local_trusted */
	SOURCE_BOARD_KEY,
	SOURCE_SESSION,
	SOURCE_AGENT_KEY,
	SOURCE_AGENT_JWT,
	SOURCE_COUNT
};

struct actor_company {
	char id[UUID_LEN + 1];
	bool viewer;
};

struct actor {
	enum actor_type type;
	enum actor_source source;
	char user_id[UUID_LEN + 1]; /* board: who; "local-board" for the implicit one */
	char agent_id[UUID_LEN + 1], company_id[UUID_LEN + 1]; /* agent */
	char on_behalf[UUID_LEN + 1]; /* agent: responsible user, "" unknown */
	char run_id[ACTOR_RUN_MAX +
		    1]; /* JWT: proof of the run. Else attribution only, and it grants nothing */
	char token_id[ID_LEN + 1]; /* key or session, "" none */
	bool admin;
	struct actor_company
	    *companies; /* board: active memberships; whoever fills them in owns them */
	size_t companies_len;
};

enum guard {
	GUARD_OPEN,
	GUARD_READ,
	GUARD_ADMIN,
	GUARD_SETTINGS,
	GUARD_BOARD,
	GUARD_KNOWN,
	GUARD_COUNT
};

const char *guard_name(enum guard g);
const char *actor_source_name(enum actor_source s);
/* NULL: allowed; else the text of the 403 (static). */
const char *guard_denies(enum guard g, const struct actor *a);
/* Implicit local board or instance administrator. */
bool actor_is_admin(const struct actor *a);
/* The user's or the agent's id, "" nobody: whose share of a bound a request takes. */
const char *actor_id(const struct actor *a);
/* A board member, or an agent, of that company. The implicit local board is in every one. */
bool actor_in_company(const struct actor *a, const char *company_id);
/* The membership there is a viewer's. */
bool actor_is_viewer(const struct actor *a, const char *company_id);
/*
 * Whether a request that changes something must show a trusted Origin: credentials that a browser adds by
 * itself (a cookie, or none where none is needed) and no others. said: it names an Origin or a Referer.
 */
bool actor_needs_origin(const struct actor *a, bool said);

#endif
