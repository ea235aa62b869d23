/* access.c: the agent-access map, made from the route table and the capabilities below. */
#include "api/access.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "os/self.h"
#include "wire/jsonmember.h"

#define FEATURE "execution-environments/"
#define MANAGED                                                                     \
	"Managing environments is for instance administrators and the local board." \
	" Which permitted environment is used follows the policy of agents and projects."

/* One row of the contract's map. The last one is Airlock's own and takes what carries no requirement of the others. */
struct row {
	const char *id, *prefix; /* of its requirements: "CF-" */
	const char *level;	 /* of agents: none, restricted, partial */
	const char *access, *policy, *gaps;
	const char *checks; /* requirements, separated by spaces */
};

static const struct row rows[] = {
    {FEATURE "configuration", "CF-", "restricted",
     "None for agents, of whatever company. Members of the board read rows without configuration, variables and metadata; "
     "administrators read and manage.",
     MANAGED, "An agent cannot manage environments as an ordinary actor of its company.",
     "CF-01 CF-02 CF-03 CF-04 CF-05 CF-06"},
    {FEATURE "capabilities", "CP-", "partial",
     "The document is a read of the board. A run is told the context that was chosen for it, and nothing of this listing.",
     MANAGED, "There is no listing of capabilities that an agent may read.", "CP-01 CP-02"},
    {FEATURE "probe", "PR-", "restricted",
     "None for agents. Probes are for administrators; members of the board may read what a recorded probe still stands for.",
     MANAGED " The right to do assigned work gives no probe, and reading a record leases nothing.",
     "A human's answer to a request does not make the caller an administrator.",
     "PR-01 PR-02 PR-03 PR-04 PR-05 PR-06 PR-07 PR-08 PR-09"},
    {FEATURE "assignment", "AS-", "partial",
     "An agent chooses for itself, and for projects of its company, among environments that are there and permitted. Others need a "
     "grant. Protected configuration is denied.",
     MANAGED, "Choosing a target is not configuring one. No plugin host runs tasks in this build.",
     "AS-01 AS-02 AS-03 AS-04 AS-05 AS-06 AS-07 AS-08"},
    {FEATURE "images", "IM-", "restricted",
     "None for agents, and no terminal. Sessions that set an image up are for administrators.",
     MANAGED,
     "No tool for images is offered to agents. No provider of this build has an interactive set-up, so no session can begin.",
     "IM-01 IM-02 IM-03 IM-04 IM-05"},
    {"airlock/operation", NULL, "restricted",
     "None for agents. Leases, runs, their results and secrets are for administrators; members of the board read what is their "
     "companies'.",
     "What carries no requirement of the map's capabilities: the daemon itself, leases, runs, change sets, secrets.",
     "None known.", ""},
};

static bool carries(const struct api_route *r, const char *prefix)
{
	return r->requires && strstr(r->requires, prefix);
}

/* The first row that it carries a requirement of: prefixes do not occur within one another. */
static const struct row *row_of(const struct api_route *r)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!rows[i].prefix || carries(r, rows[i].prefix))
			return &rows[i];
	return NULL;
}

/* What a guard says to agents, in a word: the denied-actor tests show it (access_denial). */
static const char *for_agents(enum guard g)
{
	return g == GUARD_OPEN ? "open" : g == GUARD_KNOWN ? "own" : "denied";
}

static const char *const
    refused_board[] = {"anonymous", "agent_key", "agent_jwt", "board_without_company", NULL},
    *const refused_admin[] = {"anonymous",    "agent_key",    "agent_jwt", "board_without_company",
			      "board_member", "board_viewer", NULL},
    *const refused_agents[] = {"anonymous", "agent_key", "agent_jwt", NULL},
    *const refused_known[] = {"anonymous", NULL}, *const refused_nobody[] = {NULL};

/* Whom the guard must refuse. */
static const char *const *refused(enum guard g)
{
	switch (g) {
	case GUARD_READ:
		return refused_board;
	case GUARD_ADMIN:
	case GUARD_SETTINGS:
		return refused_admin;
	case GUARD_BOARD:
		return refused_agents;
	case GUARD_KNOWN:
		return refused_known;
	default:
		return refused_nobody;
	}
}

struct tally {
	size_t passed, failed, not_run;
};

static void count(struct tally *t, const char *outcome)
{
	if (strcmp(outcome, "passed") == 0)
		t->passed++;
	else if (strcmp(outcome, "failed") == 0)
		t->failed++;
	else
		t->not_run++;
}

/* One failure makes it failed; "passed" only when nothing is left to run. */
static const char *whole(const struct tally *t)
{
	if (t->failed)
		return "failed";
	if (!t->passed)
		return "not-run";
	return t->not_run ? "partial" : "passed";
}

static json_t *operation(const struct api_route *r, const json_t *results, struct tally *t)
{
	_cleanup_buf_ struct buf name = BUF_INIT(1024);
	json_t *denied = json_object();

	(void)buf_putf(&name, "%s %s", method_name((enum method)r->method), r->pattern);
	for (const char *const *who = refused(r->guard); *who; who++) {
		const char *got = access_denial(results, buf_text(&name), *who);

		count(t, got);
		(void)json_object_set_new(denied, *who, json_string(got));
	}
	return json_pack("{s:s,s:s,s:s,s:s,s:o}", "operation", buf_text(&name), "id", r->id,
			 "guard", guard_name(r->guard), "agentAccess", for_agents(r->guard),
			 "denied", denied);
}

static json_t *operations(const struct row *row, const json_t *results, struct tally *t)
{
	json_t *list = json_array();

	for (const struct api_route *r = api_routes; r->pattern; r++)
		if (row_of(r) == row)
			(void)json_array_append_new(list, operation(r, results, t));
	return list;
}

static json_t *checks(const struct row *row, const json_t *results, struct tally *t)
{
	json_t *list = json_array();

	for (const char *p = row->checks; *p;) {
		size_t n = strcspn(p, " ");
		_cleanup_free_ char *id = strndup(p, n);
		json_t *tests = NULL;
		const char *got = id ? access_check(results, id, &tests) : "not-run";

		count(t, got);
		(void)json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "id", id ? id : "",
							    "outcome", got, "tests", tests));
		p += n + (p[n] == ' ');
	}
	return list;
}

static json_t *capability(const struct row *row, const json_t *results)
{
	struct tally t = {0};
	json_t *ops = operations(row, results, &t), *all = checks(row, results, &t);

	return json_pack("{s:s,s:s,s:o,s:{s:s,s:s},s:s,s:{s:s,s:I,s:I,s:I,s:o},s:s}", "id", row->id,
			 "api", json_array_size(ops) ? "present" : "absent", "operations", ops,
			 "agentAccess", "level", row->level, "text", row->access, "policy",
			 row->policy, "verification", "outcome", whole(&t), "passed",
			 (json_int_t)t.passed, "failed", (json_int_t)t.failed, "notRun",
			 (json_int_t)t.not_run, "checks", all, "gaps", row->gaps);
}

json_t *access_map(struct err *e)
{
	_cleanup_free_ char *path = NULL;
	char build[BUILD_ID_MAX + 1];
	json_t *results, *list = json_array(), *map;
	enum access_state state;

	self_build_id(build);
	(void)self_file(ACCESS_RESULTS, &path, NULL);
	state = access_results_read(path, build, &results);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		(void)json_array_append_new(list, capability(&rows[i], results));
	json_decref(results);
	map = json_pack("{s:s,s:s,s:s,s:s,s:o}", "feature", "execution-environments", "version",
			AIRLOCK_VERSION, "build", build, "results", access_state_word(state),
			"capabilities", list);
	if (!map)
		(void)err_set(e, ERR_NOMEM, "the agent-access map cannot be made");
	return map;
}

/* "all 4 refused", or how many of them are shown. */
static void put_denied(json_t *denied, struct buf *out)
{
	struct tally t = {0};
	const char *who;
	json_t *one;

	json_object_foreach(denied, who, one) count(&t, json_string_value(one));
	if (json_object_size(denied))
		(void)buf_putf(out, "; refusal of %zu kinds of actor: %s", json_object_size(denied),
			       whole(&t));
}

static void put_capability(const json_t *c, struct buf *out)
{
	const json_t *v = json_object_get(c, "verification"),
		     *access = json_object_get(c, "agentAccess");
	const json_t *one;
	size_t i;

	(void)buf_putf(out, "%s\n  agents: %s. %s\n  policy: %s\n  gaps: %s\n",
		       json_member_text(c, "id"), json_member_text(access, "level"),
		       json_member_text(access, "text"), json_member_text(c, "policy"),
		       json_member_text(c, "gaps"));
	json_array_foreach(json_object_get(c, "operations"), i, one)
	{
		(void)buf_putf(out, "  %s: guard %s, agents %s", json_member_text(one, "operation"),
			       json_member_text(one, "guard"),
			       json_member_text(one, "agentAccess"));
		put_denied(json_object_get(one, "denied"), out);
		(void)buf_puts(out, "\n");
	}
	(void)buf_putf(out, "  verification: %s\n", json_member_text(v, "outcome"));
	json_array_foreach(json_object_get(v, "checks"), i, one)(void)
	    buf_putf(out, "    %s: %s (%zu tests)\n", json_member_text(one, "id"),
		     json_member_text(one, "outcome"),
		     json_array_size(json_object_get(one, "tests")));
}

int access_text(const json_t *map, struct buf *out)
{
	const json_t *one;
	size_t i;

	(void)buf_putf(out, "%s, airlock %s, build %s; results of its tests: %s\n",
		       json_member_text(map, "feature"), json_member_text(map, "version"),
		       json_member_text(map, "build"), json_member_text(map, "results"));
	json_array_foreach(json_object_get(map, "capabilities"), i, one)
	{
		(void)buf_puts(out, "\n");
		put_capability(one, out);
	}
	return out->err ? -1 : 0;
}
