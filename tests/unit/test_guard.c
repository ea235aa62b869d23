/*
 * Unit tests of src/bridge/guard.c: the cases of the bridge that are the guard's to decide. Both transports end
 * here (S2-10), so each row runs twice: with the token in a header, as a channel brings it, and given,
 * as a queue envelope brings it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "bridge/guard.h"

#define TOKEN "bridge-token-0123456789-abcdefgh"
#define SECRET "agent-credential-sentinel"
#define RUN "run-0001"
#define HEADERS 160

static struct view v_of(const char *s)
{
	return (struct view){s, strlen(s)};
}

static struct guard *make(const char *policy)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	struct guard_config c = {
	    .token = v_of(TOKEN), .credential = v_of(SECRET), .run_id = v_of(RUN)};
	struct err e = ERR_INIT;
	struct guard *g = NULL;
	int r = policy ? bridge_policy_parse("t", policy, strlen(policy), &p, &e)
		       : bridge_policy_builtin("paperclip", &p, &e);

	if (r < 0)
		fail_msg("%s", e.text);
	c.policy = p;
	assert_int_equal(origin_parse("http://127.0.0.1:3100", &c.origin, NULL), 0);
	if (guard_new(&c, &g, &e) < 0)
		fail_msg("%s", e.text);
	return g;
}

static int setup(void **state)
{
	*state = make(NULL);
	return 0;
}

static int teardown(void **state)
{
	guard_free(*state);
	return 0;
}

struct request {
	struct guard_request q;
	struct header h[HEADERS];
};

static void request(struct request *r, const char *method, const char *target, bool queue)
{
	memset(&r->q, 0, sizeof(r->q));
	r->q.method = v_of(method);
	r->q.target = v_of(target);
	r->q.headers = r->h;
	if (queue) {
		r->q.token_in = GUARD_TOKEN_GIVEN;
		r->q.token = v_of(TOKEN);
	} else {
		r->h[r->q.headers_len++] =
		    (struct header){v_of("authorization"), v_of("Bearer " TOKEN)};
	}
}

static void add(struct request *r, const char *name, const char *value)
{
	assert_true(r->q.headers_len < HEADERS);
	r->h[r->q.headers_len++] = (struct header){v_of(name), v_of(value)};
}

/* 200 stands for: allowed. */
static int judge(struct guard *g, const struct request *r, struct guard_verdict *v)
{
	guard_judge(g, &r->q, v);
	if (v->allowed) {
		assert_string_equal(v->rule, "allow");
		assert_non_null(v->route_id);
		return 200;
	}
	assert_string_equal(v->rule, v->reply.rule);
	return v->reply.status;
}

static const char *sent(const struct guard_verdict *v, const char *name, char *out, size_t n)
{
	size_t seen = 0;

	out[0] = '\0';
	for (size_t i = 0; i < v->headers_len; i++) {
		if (!header_name_is(v->headers[i].name, name))
			continue;
		assert_true(v->headers[i].value.n < n);
		memcpy(out, v->headers[i].value.p, v->headers[i].value.n);
		out[v->headers[i].value.n] = '\0';
		seen++;
	}
	assert_true(seen <= 1);
	return seen ? out : NULL;
}

/* A body of our own: JSON, two texts at least, nothing secret. F06 */
static void check_reply(const struct guard_reply *r)
{
	json_t *j = json_loadb(r->body, r->body_len, JSON_REJECT_DUPLICATES, NULL);
	bool marker = false;

	if (!j)
		fail_msg("not JSON: %.*s", (int)r->body_len, r->body);
	assert_string_equal(json_string_value(json_object_get(j, "code")), r->rule);
	assert_true(json_string_length(json_object_get(j, "error")) > 5);
	json_decref(j);
	for (size_t i = 0; i < r->headers_len; i++)
		marker = marker || header_name_is(r->headers[i].name, GUARD_MARKER);
	assert_true(marker);
	assert_null(strstr(r->body, SECRET));
	assert_null(strstr(r->body, TOKEN));
	assert_null(strstr(r->body, "127.0.0.1"));
}

/* --- authentication (S2-01, S2-02) -------------------------------------------------------- */

static void authentication_in_headers_s2_01(void **state)
{
	static const struct {
		const char *id, *n1, *v1, *n2, *v2;
		int want;
	} t[] = {
	    {"A01", NULL, NULL, NULL, NULL, 401},
	    {"A02", "authorization", "Bearer bridge-token-0123456789-abcdefgi", NULL, NULL, 401},
	    {"A02", "authorization", "Bearer bridge-token-0123456789-abcdefg", NULL, NULL, 401},
	    {"A02", "authorization", "Bearer " TOKEN "x", NULL, NULL, 401},
	    {"A02", "authorization", "Bearer ", NULL, NULL, 401},
	    {"A02", "authorization", "", NULL, NULL, 401},
	    {"A02", "authorization", "Bearer " TOKEN " ", NULL, NULL, 401},
	    {"A03", "authorization", "bearer " TOKEN, NULL, NULL, 401},
	    {"A03", "authorization", "Bearer  " TOKEN, NULL, NULL, 401},
	    {"A03", "authorization", "Basic " TOKEN, NULL, NULL, 401},
	    {"A03", "authorization", TOKEN, NULL, NULL, 401},
	    {"A05", "authorization", "Bearer " TOKEN, "authorization", "Bearer x", 401},
	    {"A05", "authorization", "Bearer x", "authorization", "Bearer " TOKEN, 401},
	    {"A05", "authorization", "Bearer " TOKEN, "Authorization", "Bearer " TOKEN, 401},
	    {"A06", "authorization", "Bearer bridge-token-of-another-run-0123", NULL, NULL, 401},
	    {"A09", "authorization", "Bearer " SECRET, NULL, NULL, 401},
	    {"A01", "authorization", "Bearer " TOKEN, NULL, NULL, 200},
	    {"A01", "AUTHORIZATION", "Bearer " TOKEN, NULL, NULL, 200},
	    {"FR-B106", "x-api-key", TOKEN, NULL, NULL, 200},
	    {"FR-B106", "X-API-Key", TOKEN, "authorization", "Bearer " TOKEN, 200},
	    {"FR-B106", "x-api-key", "Bearer " TOKEN, NULL, NULL, 401},
	    {"FR-B106", "x-api-key", TOKEN, "authorization", "Bearer x", 401},
	    {"FR-B106", "x-api-key", "x", "authorization", "Bearer " TOKEN, 401},
	    {"FR-B106", "x-api-key", "", NULL, NULL, 401},
	    {"A03", "cookie", TOKEN, "x-token", TOKEN, 401},
	};
	struct guard *g = *state;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct guard_verdict v;
		struct request r;
		int got;

		request(&r, "GET", "/api/agents/me", false);
		r.q.headers_len = 0;
		if (t[i].n1)
			add(&r, t[i].n1, t[i].v1);
		if (t[i].n2)
			add(&r, t[i].n2, t[i].v2);
		got = judge(g, &r, &v);
		if (got != t[i].want)
			fail_msg("%s row %zu: %d", t[i].id, i, got);
		if (got == 401) {
			check_reply(&v.reply);
			assert_string_equal(v.rule, "auth.token");
		}
		guard_verdict_done(&v);
	}
}

/* A10: the comparison is sodium_memcmp's, whose time does not depend on where the bytes differ; and each of them counts. */
static void a10_any_wrong_byte(void **state)
{
	struct guard *g = *state;
	struct guard_verdict v;
	struct request r;

	for (size_t i = 0; i < sizeof(TOKEN) - 1; i++) {
		char wrong[] = TOKEN;

		wrong[i] ^= 1;
		request(&r, "GET", "/api/agents/me", true);
		r.q.token = (struct view){wrong, sizeof(TOKEN) - 1};
		assert_int_equal(judge(g, &r, &v), 401);
		guard_verdict_done(&v);
	}
	/* Of an envelope both count: its own token, and the client's. */
	request(&r, "GET", "/api/agents/me", false);
	r.q.token_in = GUARD_TOKEN_BOTH;
	assert_int_equal(judge(g, &r, &v), 401);
	guard_verdict_done(&v);
	r.q.token = v_of(TOKEN);
	assert_int_equal(judge(g, &r, &v), 200);
	guard_verdict_done(&v);
	request(&r, "GET", "/api/agents/me", true);
	r.q.token_in = GUARD_TOKEN_BOTH;
	assert_int_equal(judge(g, &r, &v), 401);
	guard_verdict_done(&v);
}

/* FR-B106: 10 KB. A02 on the queue. */
static void authentication_given_s2_01(void **state)
{
	static const char *const bad[] = {"", TOKEN " ", "bridge-token-0123456789-abcdefgi",
					  "bridge-token-0123456789-abcdefg", ("Bearer " TOKEN)};
	struct guard *g = *state;
	struct guard_verdict v;
	struct request r;
	char *big = malloc(10240);

	assert_non_null(big);
	memset(big, 'a', 10240);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		request(&r, "GET", "/api/agents/me", true);
		r.q.token = v_of(bad[i]);
		assert_int_equal(judge(g, &r, &v), 401);
		guard_verdict_done(&v);
	}
	r.q.token = (struct view){big, 10240};
	assert_int_equal(judge(g, &r, &v), 401);
	guard_verdict_done(&v);
	/* A token in a header is no token for the envelope. */
	request(&r, "GET", "/api/agents/me", false);
	r.q.token_in = GUARD_TOKEN_GIVEN;
	assert_int_equal(judge(g, &r, &v), 401);
	guard_verdict_done(&v);
	free(big);
}

/* A11: a stranger learns nothing but 401. A07: after the run, 503. */
static void order_of_the_checks(void **state)
{
	struct guard *g = make(NULL);
	struct guard_verdict v;
	struct request r;

	(void)state;
	request(&r, "DELETE", "//x", true);
	r.q.token = v_of("no");
	add(&r, "a b", "c\r\n");
	assert_int_equal(judge(g, &r, &v), 401);
	assert_null(v.route_id);
	guard_verdict_done(&v);
	/* target before method, method before headers, headers before size */
	r.q.token = v_of(TOKEN);
	r.q.method = v_of("delete");
	assert_int_equal(judge(g, &r, &v), 400);
	assert_string_equal(v.rule, "target.form");
	guard_verdict_done(&v);
	r.q.target = v_of("/api/agents/me");
	assert_int_equal(judge(g, &r, &v), 400);
	assert_string_equal(v.rule, "method.syntax");
	guard_verdict_done(&v);
	r.q.method = v_of("PATCH");
	r.q.target = v_of("/api/issues/1");
	r.q.body_len = INT64_MAX;
	assert_int_equal(judge(g, &r, &v), 400);
	assert_string_equal(v.rule, "headers.name");
	guard_verdict_done(&v);
	r.q.headers_len = 0;
	assert_int_equal(judge(g, &r, &v), 413);
	guard_verdict_done(&v);

	guard_stop(g);
	request(&r, "GET", "/api/agents/me", false);
	assert_int_equal(judge(g, &r, &v), 503);
	assert_string_equal(v.rule, "bridge.stopped");
	check_reply(&v.reply);
	guard_verdict_done(&v);
	r.h[0].value = v_of("Bearer x");
	assert_int_equal(judge(g, &r, &v), 401);
	guard_verdict_done(&v);
	guard_free(g);
}

/* --- paths and methods (S2-04) ------------------------------------------------------------ */

static void paths_and_methods_s2_04(void **state)
{
	static const struct {
		const char *id, *method, *target;
		int want;
		const char *rule;
	} t[] = {
	    {"P01", "GET", "/api/agents/me", 200, "allow"},
	    {"P02", "GET", "/api/companies/../agents", 400, "target.segment"},
	    {"P04", "GET", "/api/agents/..\\..\\api\\companies\\c1\\secrets", 400, "target.byte"},
	    {"P05", "GET", "/api/agents/%5c..%5c..", 400, "target.escape"},
	    {"P06", "GET", "/api%2fagents/me", 400, "target.escape"},
	    {"P08", "GET", "//evil/api/agents/me", 400, "target.form"},
	    {"P08", "GET", "/api/agents/me/", 400, "target.segment"},
	    {"P09", "GET", "http://evil/api/agents/me", 400, "target.form"},
	    {"P09", "GET", "", 400, "target.empty"},
	    {"P10", "GET", "/api/agents/me;x=1", 400, "target.byte"},
	    {"P12", "GET", "/api/companies/.\t./agents", 400, "target.byte"},
	    {"P13", "GET", "/api/agents/%0d%0aX:y", 400, "target.escape"},
	    {"P14", "GET", "/api/agents/%C3%A9", 200, "allow"},
	    {"P14", "GET", "/api/agents/%c0%ae%c0%ae", 400, "target.utf8"},
	    {"P16", "POST", "/api/issues/..\\..\\x#/comments", 400, "target.byte"},
	    {"P17", "POST", "/api/issues/i?/comments", 403, "route.method"},
	    {"P18", "GET", "/API/agents/me", 403, "route.path"},
	    {"P18", "GET", "/Api/Agents/ME", 403, "route.path"},
	    {"P20", "GET", "/api/agents/me?_method=DELETE", 200, "allow"},
	    {"P21", "GET", "/api/companies/c/issues?status=a%2Fb&u=http://x", 200, "allow"},
	    {"P22", "GET", "/api/agents/me?a\\b", 400, "target.byte"},
	    {"P28", "CONNECT", "evil:80", 400, "target.form"},
	    {"M04", "HEAD", "/api/agents/me", 403, "route.method"},
	    {"M04", "OPTIONS", "/api/agents/me", 403, "route.method"},
	    {"M04", "TRACE", "/api/agents/me", 403, "route.method"},
	    {"M05", "get", "/api/agents/me", 400, "method.syntax"},
	    {"M05", " GET", "/api/agents/me", 400, "method.syntax"},
	    {"M05", "GET\t", "/api/agents/me", 400, "method.syntax"},
	    {"M05", "GET / HTTP/1.1", "/api/agents/me", 400, "method.syntax"},
	    {"M05", "", "/api/agents/me", 400, "method.syntax"},
	    {"FR-B137", "GET", "/issues/x", 403, "route.path"},
	    {"FR-B137", "GET", "/api", 403, "route.path"},
	    {"FR-B137", "GET", "/", 403, "route.path"},
	    {"FR-B137", "GET", "/api//agents/me", 400, "target.segment"},
	};
	struct guard *g = *state;
	char kilo[1025];

	for (size_t i = 0; i < 2 * ARRAY_LEN(t); i++) {
		size_t k = i / 2;
		struct guard_verdict v;
		struct request r;
		int got;

		request(&r, t[k].method, t[k].target, i & 1);
		got = judge(g, &r, &v);
		if (got != t[k].want || strcmp(v.rule, t[k].rule) != 0)
			fail_msg("%s %s %s: %d %s", t[k].id, t[k].method, t[k].target, got, v.rule);
		if (got == 200) {
			/* What was judged is what is sent: the input's own bytes. */
			assert_ptr_equal(v.target.all.p, t[k].target);
			assert_int_equal(v.target.all.n, strlen(t[k].target));
			assert_string_equal(v.method_name, t[k].method);
		} else {
			check_reply(&v.reply);
		}
		guard_verdict_done(&v);
	}
	/* M05: 1 kB, NUL */
	memset(kilo, 'A', sizeof(kilo));
	for (size_t n = 1024; n; n = n == 1024 ? 4 : 0) {
		struct guard_verdict v;
		struct request r;

		request(&r, "GET", "/api/agents/me", true);
		r.q.method = n == 1024 ? (struct view){kilo, n} : (struct view){"GET\0", 4};
		assert_int_equal(judge(g, &r, &v), 400);
		guard_verdict_done(&v);
	}
}

/* The allow-list in the words of the peer's notes: one row a path, methods of it. '*' is one segment. */
static const struct {
	const char *path;
	unsigned methods;
} rules[] = {
    {"/api/agents/me", METHOD_GET},
    {"/api/agents/me/inbox-lite", METHOD_GET},
    {"/api/agents/me/inbox/mine", METHOD_GET},
    {"/api/agents/*", METHOD_GET},
    {"/api/agents/*/skills", METHOD_GET},
    {"/api/agents/*/skills/sync", METHOD_POST},
    {"/api/agents/*/instructions-path", METHOD_PATCH},
    {"/api/openapi.json", METHOD_GET},
    {"/api/companies/*", METHOD_GET},
    {"/api/companies/*/dashboard", METHOD_GET},
    {"/api/companies/*/agents", METHOD_GET},
    {"/api/companies/*/issues", METHOD_GET | METHOD_POST},
    {"/api/companies/*/projects", METHOD_GET},
    {"/api/companies/*/goals", METHOD_GET},
    {"/api/companies/*/org", METHOD_GET},
    {"/api/companies/*/approvals", METHOD_GET | METHOD_POST},
    {"/api/companies/*/routines", METHOD_GET | METHOD_POST},
    {"/api/companies/*/skills", METHOD_GET},
    {"/api/companies/*/agent-configurations", METHOD_GET},
    {"/api/companies/*/agent-hires", METHOD_POST},
    {"/api/companies/*/issues/*/attachments", METHOD_POST},
    {"/api/companies/*/email/inboxes", METHOD_GET},
    {"/api/companies/*/email/tasks/*", METHOD_GET},
    {"/api/companies/*/email/deliveries/*", METHOD_GET},
    {"/api/companies/*/email/send", METHOD_POST},
    {"/api/projects/*", METHOD_GET},
    {"/api/goals/*", METHOD_GET},
    {"/api/issues/*", METHOD_GET | METHOD_PATCH},
    {"/api/issues/*/heartbeat-context", METHOD_GET},
    {"/api/issues/*/comments", METHOD_GET | METHOD_POST},
    {"/api/issues/*/comments/*", METHOD_GET},
    {"/api/issues/*/documents", METHOD_GET},
    {"/api/issues/*/documents/*", METHOD_GET | METHOD_PUT},
    {"/api/issues/*/documents/*/revisions", METHOD_GET},
    {"/api/issues/*/approvals", METHOD_GET | METHOD_POST},
    {"/api/issues/*/attachments", METHOD_GET},
    {"/api/issues/*/work-products", METHOD_GET | METHOD_POST},
    {"/api/issues/*/interactions", METHOD_GET | METHOD_POST},
    {"/api/issues/*/interactions/*", METHOD_GET},
    {"/api/issues/*/interactions/*/accept", METHOD_POST},
    {"/api/issues/*/interactions/*/reject", METHOD_POST},
    {"/api/issues/*/interactions/*/respond", METHOD_POST},
    {"/api/issues/*/interactions/*/verdicts", METHOD_POST},
    {"/api/issues/*/interactions/*/withdraw", METHOD_POST},
    {"/api/issues/*/checkout", METHOD_POST},
    {"/api/issues/*/release", METHOD_POST},
    {"/api/attachments/*/content", METHOD_GET},
    {"/llms/agent-configuration.txt", METHOD_GET},
    {"/llms/agent-configuration/?*.txt", METHOD_GET},
    {"/llms/agent-icons.txt", METHOD_GET},
    {"/api/approvals/*", METHOD_GET},
    {"/api/approvals/*/issues", METHOD_GET},
    {"/api/approvals/*/comments", METHOD_GET | METHOD_POST},
    {"/api/execution-workspaces/*", METHOD_GET},
    {"/api/execution-workspaces/*/runtime-services/start", METHOD_POST},
    {"/api/execution-workspaces/*/runtime-services/stop", METHOD_POST},
    {"/api/execution-workspaces/*/runtime-services/restart", METHOD_POST},
    {"/api/routines/*", METHOD_GET | METHOD_PATCH},
    {"/api/routines/*/runs", METHOD_GET},
    {"/api/routines/*/run", METHOD_POST},
    {"/api/routines/*/triggers", METHOD_POST},
    {"/api/routine-triggers/*", METHOD_PATCH | METHOD_DELETE},
    {"/api/work-products/*", METHOD_PATCH},
    {"/runtime-tools/github/credentials", METHOD_POST},
};

static bool listed(unsigned method, const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if ((rules[i].methods & method) && fnmatch(rules[i].path, path, FNM_PATHNAME) == 0)
			return true;
	return false;
}

static void every_method(struct guard *g, const char *path, size_t *allowed)
{
	for (unsigned m = METHOD_GET; m <= METHOD_DELETE; m <<= 1) {
		struct guard_verdict v;
		struct request r;
		int got, want = listed(m, path) ? 200 : 403;

		request(&r, method_name((enum method)m), path, m & 1);
		got = judge(g, &r, &v);
		if (got != want)
			fail_msg("%s %s: %d, want %d", method_name((enum method)m), path, got,
				 want);
		if (got == 403)
			check_reply(&v.reply);
		*allowed += got == 200;
		guard_verdict_done(&v);
	}
}

/* M01, M02, FR-B011: each rule, a segment more, a segment less, a neighbour, with each method. */
static void the_allow_list_of_the_peer_M01_M02_s2_04(void **state)
{
	static const char *const denied[] = {
	    "/api/agents/a/pause",
	    "/api/agents/a/terminate",
	    "/api/agents/a/keys",
	    "/api/approvals/a/approve",
	    "/api/approvals/a/reject",
	    "/api/companies/c/exports",
	    "/api/companies/c/imports/apply",
	    "/api/companies/c/archive",
	    "/api/companies/c/logo",
	    "/api/companies/c/secrets",
	    "/api/secrets/s",
	    "/api/companies/c/agent-hires/h",
	    "/api/companies/c/email/connections",
	    "/api/companies/c/email/inspect",
	    "/api/companies/c/email/deliveries/d/resolve",
	    "/api/execution-workspaces/w/runtime-services/delete",
	    "/api/issues/i/approvals/a",
	    "/llms/agent-configuration/.txt",
	    "/llms/agent-configuration/a.json",
	    "/api/agents",
	};
	size_t allowed = 0;

	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		char path[256], more[300];
		char *slash;
		size_t n = 0;

		for (const char *c = rules[i].path; *c; c += c[0] == '?' ? 2 : 1)
			n += (size_t)(strchr("?*", *c)
					  ? snprintf(path + n, sizeof(path) - n, "x-%zu", i)
					  : snprintf(path + n, sizeof(path) - n, "%c", *c));
		every_method(*state, path, &allowed);
		(void)snprintf(more, sizeof(more), "%s/more", path);
		every_method(*state, more, &allowed);
		(void)snprintf(more, sizeof(more), "%sx", path);
		every_method(*state, more, &allowed);
		slash = strrchr(path, '/');
		if (slash > path) {
			*slash = '\0';
			every_method(*state, path, &allowed);
		}
	}
	assert_true(allowed > 80);
	for (size_t i = 0; i < ARRAY_LEN(denied); i++)
		every_method(*state, denied[i], &allowed);
}

/* --- headers (S2-03, S2-05, S2-06) -------------------------------------------------------- */

static void what_is_forwarded_s2_05_s2_06(void **state)
{
	/* H01, H02, H06, H14, P20: dropped, in any spelling */
	static const char *const dropped[] = {
	    "cookie",
	    "x-forwarded-host",
	    "X-Forwarded-For",
	    "x-paperclip-tool-gateway-token",
	    "x-openclaw-token",
	    "origin",
	    "range",
	    "x-paperclip-cloud-x",
	    "X-Paperclip-Run-Id",
	    "x-paperclip-run-id",
	    "host",
	    "content-length",
	    "transfer-encoding",
	    "Connection",
	    "expect",
	    "upgrade",
	    "te",
	    "trailer",
	    "x-http-method-override",
	    "user-agent",
	    "x-paperclip-github-capability",
	    "x-paperclip-bridge-outcome",
	    "x-airlock-bridge",
	};
	struct guard *g = *state;

	for (int queue = 0; queue < 2; queue++) {
		struct guard_verdict v;
		struct request r;
		char out[256];

		request(&r, "POST", "/api/issues/i/comments", queue);
		for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
			add(&r, dropped[i], "evil");
		if (queue)
			add(&r, "authorization", "Bearer evil");
		add(&r, "Content-Type", "application/json");
		add(&r, "ACCEPT", "*/*");
		add(&r, "if-match", "\"\xc3\xa9\"\t1");
		add(&r, "Idempotency-Key", "k1"); /* FR-B075 */
		assert_int_equal(judge(g, &r, &v), 200);
		/* S2-03, H02: ours, exactly once */
		assert_string_equal(sent(&v, "authorization", out, sizeof(out)), "Bearer " SECRET);
		assert_string_equal(sent(&v, "x-paperclip-run-id", out, sizeof(out)), RUN);
		assert_string_equal(sent(&v, "content-type", out, sizeof(out)), "application/json");
		assert_string_equal(sent(&v, "accept", out, sizeof(out)), "*/*");
		assert_string_equal(sent(&v, "if-match", out, sizeof(out)), "\"\xc3\xa9\"\t1");
		assert_string_equal(sent(&v, "idempotency-key", out, sizeof(out)), "k1");
		assert_int_equal(v.headers_len, 6);
		for (size_t i = 0; i < v.headers_len; i++) {
			assert_true(memmem(v.headers[i].value.p, v.headers[i].value.n, "evil", 4) ==
				    NULL);
			assert_true(memmem(v.headers[i].value.p, v.headers[i].value.n, TOKEN,
					   strlen(TOKEN)) == NULL);
		}
		guard_verdict_done(&v);
		/* H14: on its own route it passes */
		request(&r, "POST", "/runtime-tools/github/credentials", queue);
		add(&r, "X-Paperclip-Github-Capability", "c1");
		assert_int_equal(judge(g, &r, &v), 200);
		assert_string_equal(sent(&v, "x-paperclip-github-capability", out, sizeof(out)),
				    "c1");
		guard_verdict_done(&v);
	}
}

static void bad_headers_are_refused(void **state)
{
	static const struct {
		const char *id, *name, *value;
		size_t value_n;
		int want;
		const char *rule;
	} t[] = {
	    {"H04", "accept", "a\r\nx-evil: 1", 0, 400, "headers.value"},
	    {"H04", "accept", "a\nb", 0, 400, "headers.value"},
	    {"H04", "accept", "a\0b", 3, 400, "headers.value"},
	    {"H04", "x-dropped", "a\rb", 0, 400, "headers.value"},
	    {"H04", "accept", "a\x7f", 0, 400, "headers.value"},
	    {"H05", "a b", "c", 0, 400, "headers.name"},
	    {"H05", "accept ", "c", 0, 400, "headers.name"},
	    {"H05", "accept:", "c", 0, 400, "headers.name"},
	    {"H05", "accept\r", "c", 0, 400, "headers.name"},
	    {"H05", "", "c", 0, 400, "headers.name"},
	    {"H05", "\xc3\xa9", "c", 0, 400, "headers.name"},
	    {"H05", ":path", "/x", 0, 400, "headers.name"},
	};
	struct guard *g = *state;

	for (size_t i = 0; i < 2 * ARRAY_LEN(t); i++) {
		size_t k = i / 2;
		struct guard_verdict v;
		struct request r;
		int got;

		request(&r, "GET", "/api/agents/me", i & 1);
		add(&r, t[k].name, t[k].value);
		if (t[k].value_n)
			r.h[r.q.headers_len - 1].value.n = t[k].value_n;
		got = judge(g, &r, &v);
		if (got != t[k].want || strcmp(v.rule, t[k].rule) != 0)
			fail_msg("%s row %zu: %d %s", t[k].id, k, got, v.rule);
		check_reply(&v.reply);
		guard_verdict_done(&v);
	}
}

/* H12: 128 and 129 headers; 16384 and 16385 bytes; a value of 4096 and 4097; one that passes, twice. */
static void header_limits_at_the_edge_H12_s2_07(void **state)
{
	struct guard *g = *state;
	struct guard_verdict v;
	struct request r;
	char *big = malloc(BRIDGE_HEADER_BLOCK_MAX);

	assert_non_null(big);
	memset(big, 'v', BRIDGE_HEADER_BLOCK_MAX);
	request(&r, "GET", "/api/agents/me", true);
	for (size_t i = 0; i < BRIDGE_HEADERS_MAX; i++)
		add(&r, "x-a", "v");
	assert_int_equal(judge(g, &r, &v), 200);
	guard_verdict_done(&v);
	add(&r, "x-a", "v");
	assert_int_equal(judge(g, &r, &v), 431);
	assert_string_equal(v.rule, "headers.count");
	guard_verdict_done(&v);

	request(&r, "GET", "/api/agents/me", true);
	for (int i = 0; i < 4; i++)
		add(&r, "name", "");
	for (int i = 0; i < 4; i++)
		r.h[i].value = (struct view){big, BRIDGE_HEADER_BLOCK_MAX / 4 - 4};
	assert_int_equal(judge(g, &r, &v), 200);
	guard_verdict_done(&v);
	r.h[3].value.n++;
	assert_int_equal(judge(g, &r, &v), 431);
	assert_string_equal(v.rule, "headers.size");
	guard_verdict_done(&v);

	request(&r, "GET", "/api/agents/me", true);
	add(&r, "accept", "");
	r.h[0].value = (struct view){big, BRIDGE_HEADER_VALUE_MAX};
	assert_int_equal(judge(g, &r, &v), 200);
	guard_verdict_done(&v);
	r.h[0].value.n++;
	assert_int_equal(judge(g, &r, &v), 431);
	assert_string_equal(v.rule, "headers.value_size");
	guard_verdict_done(&v);

	request(&r, "GET", "/api/agents/me", false);
	add(&r, "accept", "a");
	add(&r, "Accept", "a");
	assert_int_equal(judge(g, &r, &v), 400);
	assert_string_equal(v.rule, "headers.duplicate");
	check_reply(&v.reply);
	guard_verdict_done(&v);
	free(big);
}

/* --- bodies (S2-07) ----------------------------------------------------------------------- */

/* B01, B02, FR-B045: at the limit, one beyond; both figures; not to be tried again. */
static void bodies_at_the_edge_s2_07(void **state)
{
	static const int64_t sizes[] = {255 << 10, 257 << 10, BRIDGE_BODY_MAX - 1, BRIDGE_BODY_MAX};
	struct guard *g = *state;
	struct guard_verdict v;
	struct request r;

	request(&r, "POST", "/api/issues/i/comments", true);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		r.q.body_len = sizes[i];
		assert_int_equal(judge(g, &r, &v), 200);
		guard_verdict_done(&v);
	}
	r.q.body_len = BRIDGE_BODY_MAX + 1;
	assert_int_equal(judge(g, &r, &v), 413);
	check_reply(&v.reply);
	assert_non_null(strstr(v.reply.body, "10551297"));
	assert_non_null(strstr(v.reply.body, "10551296"));
	assert_non_null(strstr(v.reply.body, "\"retryable\":false"));
	guard_verdict_done(&v);
	r.q.body_len = -1;
	assert_int_equal(judge(g, &r, &v), 200);
	assert_int_equal(guard_body(&v, BRIDGE_BODY_MAX - 1), 0);
	assert_int_equal(guard_body(&v, 1), 0);
	assert_int_equal(guard_body(&v, 1), -E2BIG);
	assert_false(v.allowed);
	assert_int_equal(v.reply.status, 413);
	check_reply(&v.reply);
	assert_int_equal(guard_body(&v, SIZE_MAX), -E2BIG);
	guard_verdict_done(&v);
}

/* M08: a GET has no body, announced or not. */
static void no_body_with_a_get_M08(void **state)
{
	struct guard *g = *state;
	struct guard_verdict v;
	struct request r;

	request(&r, "GET", "/api/agents/me", true);
	r.q.body_len = 1;
	assert_int_equal(judge(g, &r, &v), 400);
	assert_string_equal(v.rule, "body.method");
	check_reply(&v.reply);
	guard_verdict_done(&v);
	r.q.body_len = -1;
	assert_int_equal(judge(g, &r, &v), 200);
	assert_int_equal(guard_body(&v, 0), 0);
	assert_int_equal(guard_body(&v, 1), -E2BIG);
	assert_int_equal(v.reply.status, 400);
	guard_verdict_done(&v);
}

/* B13: the same answer for any content type, and for none: the API decides. */
static void content_types_are_the_apis_B13(void **state)
{
	static const char *const types[] = {"application/json", "text/html", "", NULL};
	struct guard *g = *state;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		for (int queue = 0; queue < 2; queue++) {
			struct guard_verdict v;
			struct request r;

			request(&r, "POST", "/api/issues/i/comments", queue);
			if (types[i])
				add(&r, "content-type", types[i]);
			assert_int_equal(judge(g, &r, &v), 200);
			guard_verdict_done(&v);
		}
	}
}

/* --- faults and responses ----------------------------------------------------------------- */

static bool has(const struct guard_reply *r, const char *name, const char *value)
{
	for (size_t i = 0; i < r->headers_len; i++)
		if (header_name_is(r->headers[i].name, name) &&
		    header_name_is(r->headers[i].value, value))
			return true;
	return false;
}

/* C10, C11, C13, B12, A07: by cause, by method, by whether a byte went upstream. */
static void faults_by_outcome(void **state)
{
	static const struct {
		enum guard_cause cause;
		bool sent;
		int get, post;
	} t[] = {
	    {GUARD_STOPPED, false, 503, 503},	   {GUARD_OVERLOAD, false, 503, 503},
	    {GUARD_MEMORY, false, 503, 503},	   {GUARD_UNREACHABLE, false, 503, 503},
	    {GUARD_BODY_IDLE, false, 408, 408},	   {GUARD_STOPPED, true, 503, 409},
	    {GUARD_BODY_IDLE, true, 408, 409},	   {GUARD_UPSTREAM_LOST, true, 502, 409},
	    {GUARD_UPSTREAM_TIME, true, 504, 409}, {GUARD_UPSTREAM_BAD, true, 502, 409},
	    {GUARD_RESPONSE_SIZE, true, 502, 409}, {GUARD_UPSTREAM_LOST, false, 502, 409},
	};
	struct guard *g = *state;

	for (size_t i = 0; i < 2 * ARRAY_LEN(t); i++) {
		size_t k = i / 2;
		bool post = i & 1;
		int want = post ? t[k].post : t[k].get;
		struct guard_verdict v;
		struct guard_reply out;
		struct request r;

		request(&r, post ? "POST" : "GET", "/api/issues/i/comments", true);
		assert_int_equal(judge(g, &r, &v), 200);
		guard_fault(&v, t[k].cause, t[k].sent, &out);
		if (out.status != want)
			fail_msg("cause %d sent %d post %d: %d", (int)t[k].cause, t[k].sent, post,
				 out.status);
		check_reply(&out);
		assert_int_equal(has(&out, GUARD_OUTCOME, "indeterminate"), want == 409);
		assert_int_equal(strstr(out.body, "\"outcome\":\"indeterminate\"") != NULL,
				 want == 409);
		if (want == 409)
			assert_non_null(strstr(out.body, "\"retryable\":false"));
		guard_verdict_done(&v);
	}
	guard_fault(NULL, GUARD_OVERLOAD, false, &(struct guard_reply){0});
}

static const char *passed(const struct guard_response *r, const char *name)
{
	for (size_t i = 0; i < r->headers_len; i++)
		if (header_name_is(r->headers[i].name, name))
			return r->headers[i].value.p;
	return NULL;
}

/* F02, F03, F05, F09, H06 */
static void response_headers(void **state)
{
	static const int none[] = {-1, 0, 99, 100, 101, 199, 600, 1000};
	static const int statuses[] = {200, 204, 304, 401, 403, 404, 409, 422, 429, 500, 599};
	struct header h[] = {
	    {v_of("Content-Type"), v_of("application/json")},
	    {v_of("content-type"), v_of("text/evil")},
	    {v_of("ETag"), v_of("\"1\"")},
	    {v_of("set-cookie"), v_of("a=b")},
	    {v_of("location"), v_of("/api/agents/me")},
	    {v_of("www-authenticate"), v_of("Basic")},
	    {v_of("x-internal"), v_of("1")},
	    {v_of(GUARD_OUTCOME), v_of("indeterminate")},
	    {v_of(GUARD_MARKER), v_of("auth.token")},
	    {v_of("connection"), v_of("close")},
	    {v_of("transfer-encoding"), v_of("chunked")},
	    {v_of("content-length"), v_of("9")},
	    {v_of("last-modified"), v_of("a\r\nx-evil: 1")},
	    {v_of("retry-after"), v_of("")},
	};
	char *big = malloc(65536);
	struct guard *g = *state;
	struct guard_response resp;
	struct guard_verdict v;
	struct request r;

	assert_non_null(big);
	memset(big, 'v', 65536);
	request(&r, "GET", "/api/agents/me", true);
	assert_int_equal(judge(g, &r, &v), 200);
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
		h[13].value = (struct view){big, 65536};
		assert_int_equal(guard_response(&v, statuses[i], h, ARRAY_LEN(h), &resp), 0);
		assert_int_equal(resp.status, statuses[i]);
		assert_int_equal(resp.headers_len, 2);
		assert_ptr_equal(passed(&resp, "content-type"), h[0].value.p);
		assert_ptr_equal(passed(&resp, "etag"), h[2].value.p);
		assert_int_equal(resp.dropped, ARRAY_LEN(h) - 2);
		h[13].value.n = BRIDGE_HEADER_VALUE_MAX;
		assert_int_equal(guard_response(&v, statuses[i], h, ARRAY_LEN(h), &resp), 0);
		assert_non_null(passed(&resp, "retry-after"));
	}
	/* Q12 of the upstream: a status that is none */
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_int_equal(guard_response(&v, none[i], h, 1, &resp), -EPROTO);
	assert_int_equal(guard_response_body(&v, BRIDGE_BODY_MAX), 0);
	assert_int_equal(guard_response_body(&v, 1), -E2BIG);
	assert_int_equal(guard_response_body(&v, SIZE_MAX), -E2BIG);
	guard_verdict_done(&v);
	free(big);
}

/* F01, FR-B189: a redirect is data, and its Location a path of ours or nothing. */
static void redirects_are_data_F01(void **state)
{
	static const struct {
		const char *location, *want;
	} t[] = {
	    {"/b?c=d", "/b?c=d"},
	    {"http://127.0.0.1:3100/b", "/b"},
	    {"http://127.0.0.1:3100", "/"},
	    {"http://127.0.0.1:3101/b", NULL},
	    {"https://127.0.0.1:3100/b", NULL},
	    {"http://127.0.0.1:3100@evil/", NULL},
	    {"http://169.254.169.254/latest", NULL},
	    {"//evil/b", NULL},
	    {"/\\evil", NULL},
	    {"/../b", NULL},
	    {"b", NULL},
	    {"", NULL},
	    {"file:///etc/passwd", NULL},
	    {"/a\r\nx: y", NULL},
	};
	static const int statuses[] = {301, 302, 303, 307, 308};
	struct guard *with =
	    make("{\"version\":1,\"name\":\"t\",\"response_headers\":[\"location\"],"
		 "\"routes\":[\"GET /a\"]}");
	struct guard *without = *state;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct header h = {v_of("Location"), v_of(t[i].location)};
		struct guard_response resp;
		struct guard_verdict v;
		struct request r;

		request(&r, "GET", "/a", true);
		assert_int_equal(judge(with, &r, &v), 200);
		assert_int_equal(guard_response(&v, statuses[i % 5], &h, 1, &resp), 0);
		assert_int_equal(resp.status, statuses[i % 5]);
		assert_int_equal(resp.headers_len, t[i].want ? 1 : 0);
		if (t[i].want) {
			assert_int_equal(resp.headers[0].value.n, strlen(t[i].want));
			assert_memory_equal(resp.headers[0].value.p, t[i].want, strlen(t[i].want));
		}
		guard_verdict_done(&v);
		request(&r, "GET", "/api/agents/me", true);
		assert_int_equal(judge(without, &r, &v), 200);
		assert_int_equal(guard_response(&v, 302, &h, 1, &resp), 0);
		assert_int_equal(resp.headers_len, 0);
		guard_verdict_done(&v);
	}
	guard_free(with);
}

/* --- configuration ------------------------------------------------------------------------ */

static void bad_configurations_are_refused_s2_02(void **state)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	char longest[BRIDGE_CREDENTIAL_MAX + 1];
	const struct guard_config good = {
	    .token = v_of(TOKEN), .credential = v_of(SECRET), .run_id = v_of(RUN)};
	struct guard_config c;
	struct guard *g = NULL;
	struct err e = ERR_INIT;

	(void)state;
	memset(longest, 'x', sizeof(longest));
	assert_int_equal(bridge_policy_builtin("paperclip", &p, NULL), 0);
#define REFUSED(field, value, word)                               \
	do {                                                      \
		c = good;                                         \
		c.policy = p;                                     \
		c.field = (value);                                \
		assert_int_equal(guard_new(&c, &g, &e), -EINVAL); \
		assert_non_null(strstr(e.text, word));            \
		assert_null(strstr(e.text, TOKEN));               \
		assert_null(strstr(e.text, SECRET));              \
	} while (0)
	REFUSED(token, v_of("short"), "token");
	REFUSED(token, ((struct view){longest, BRIDGE_TOKEN_MAX + 1}), "token");
	REFUSED(token, v_of(TOKEN " " TOKEN), "token");
	REFUSED(token, ((struct view){longest, BRIDGE_TOKEN_MIN - 1}), "token");
	REFUSED(credential, v_of("a\nb"), "credential");
	REFUSED(credential, ((struct view){longest, BRIDGE_CREDENTIAL_MAX + 1}), "credential");
	REFUSED(credential, v_of(TOKEN), "own"); /* A09, S2-02 */
	REFUSED(run_id, v_of(""), "run");
	REFUSED(run_id, v_of("a\r\nb"), "run");
	REFUSED(agent_id, v_of("a b"), "agent");
#undef REFUSED
	c = good;
	c.policy = p;
	assert_int_equal(guard_new(&c, &g, &e), 0);
	guard_free(g);
}

/* A reload while a request is under way: that one ends under the policy that judged it. */
static void reload_under_way(void **state)
{
	static const char only_a[] = "{\"version\":1,\"name\":\"n\",\"routes\":[\"GET /a\"]}";
	static const char needs[] =
	    "{\"version\":1,\"name\":\"n\",\"identity_headers\":{\"x-t\":\"{task}\"},\"routes\":[\"GET /a\"]}";
	static const char prefix[] =
	    "{\"version\":1,\"name\":\"n\",\"credential\":{\"header\":\"x-k\"},\"routes\":[\"GET /a\"]}";
	struct header h = {v_of("etag"), v_of("1")};
	struct bridge_policy *p = NULL;
	struct guard *g = make(NULL);
	struct guard_response resp;
	struct guard_verdict v, v2;
	struct err e = ERR_INIT;
	struct request r, r2;

	(void)state;
	request(&r, "GET", "/api/agents/me", true);
	assert_int_equal(judge(g, &r, &v), 200);
	assert_int_equal(bridge_policy_parse("n", needs, strlen(needs), &p, NULL), 0);
	assert_int_equal(guard_set_policy(g, p, &e), -EINVAL);
	assert_non_null(strstr(e.text, "task"));
	bridge_policy_unref(p);
	assert_int_equal(bridge_policy_parse("n", prefix, strlen(prefix), &p, NULL), 0);
	assert_int_equal(guard_set_policy(g, p, &e), -EINVAL);
	bridge_policy_unref(p);
	assert_string_equal(guard_policy(g)->name, "paperclip");
	assert_int_equal(bridge_policy_parse("n", only_a, strlen(only_a), &p, NULL), 0);
	assert_int_equal(guard_set_policy(g, p, &e), 0);
	bridge_policy_unref(p);
	assert_string_equal(guard_policy(g)->name, "n");

	request(&r2, "GET", "/api/agents/me", true);
	assert_int_equal(judge(g, &r2, &v2), 403);
	guard_verdict_done(&v2);
	assert_string_equal(v.route_id, "GET /api/agents/me");
	assert_int_equal(guard_response(&v, 200, &h, 1, &resp), 0);
	assert_int_equal(resp.headers_len, 1);
	guard_verdict_done(&v);
	request(&r2, "GET", "/a", true);
	assert_int_equal(judge(g, &r2, &v2), 200);
	guard_verdict_done(&v2);
	guard_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(authentication_in_headers_s2_01),
	    cmocka_unit_test(authentication_given_s2_01),
	    cmocka_unit_test(order_of_the_checks),
	    cmocka_unit_test(paths_and_methods_s2_04),
	    cmocka_unit_test(a10_any_wrong_byte),
	    cmocka_unit_test(the_allow_list_of_the_peer_M01_M02_s2_04),
	    cmocka_unit_test(what_is_forwarded_s2_05_s2_06),
	    cmocka_unit_test(bad_headers_are_refused),
	    cmocka_unit_test(header_limits_at_the_edge_H12_s2_07),
	    cmocka_unit_test(bodies_at_the_edge_s2_07),
	    cmocka_unit_test(no_body_with_a_get_M08),
	    cmocka_unit_test(content_types_are_the_apis_B13),
	    cmocka_unit_test(faults_by_outcome),
	    cmocka_unit_test(response_headers),
	    cmocka_unit_test(redirects_are_data_F01),
	    cmocka_unit_test(bad_configurations_are_refused_s2_02),
	    cmocka_unit_test(reload_under_way),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
