/* policy: look at the rules of door 2 without a run. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/guard.h"
#include "bridge/policy_load.h"
#include "cli/cli.h"
#include "policy/query.h"

const struct opt opts_policy[] = {
    {"policy", 0, "NAME", "explain: this policy, built in or a file (default: paperclip)", 1},
    {"header", 0, "NAME:VALUE", "explain: a header of the request (may be repeated)", 2},
    {"body-size", 0, "SIZE", "explain: the request has a body of so many bytes", 3},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const tables[] = {opts_policy, opts_help, NULL};

struct ask {
	const char *policy;
	struct header headers[BRIDGE_HEADERS_MAX + 1];
	size_t headers_len;
	uint64_t body;
	bool help;
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct ask *a = arg;
	const char *colon;

	switch (o->id) {
	case 0:
		a->help = true;
		return 0;
	case 1:
		a->policy = value;
		return 0;
	case 2:
		colon = strchr(value, ':');
		if (!colon || a->headers_len == ARRAY_LEN(a->headers))
			return err_set(e, ERR_USAGE,
				       "--header wants NAME:VALUE, at most %d times: %.80s",
				       BRIDGE_HEADERS_MAX + 1, value);
		a->headers[a->headers_len].name = (struct view){value, (size_t)(colon - value)};
		colon += 1 + strspn(colon + 1, " \t");
		a->headers[a->headers_len++].value = (struct view){colon, strlen(colon)};
		return 0;
	default:
		if (str_to_size(value, &a->body) < 0 || a->body > INT64_MAX)
			return err_set(e, ERR_USAGE,
				       "--body-size wants a size like 300 or 10M: %.80s", value);
		return 0;
	}
}

static int print_policy(const struct bridge_policy *p, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)16 << 20);

	if (bridge_policy_print(p, &b) < 0)
		return err_set(e, ERR_NOMEM, "policy show: out of memory");
	(void)fputs(buf_text(&b), stdout);
	return 0;
}

static int show(const char *word, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	int r = policy_load(word, &p, e);

	return r < 0 ? r : print_policy(p, e);
}

static int check(const char *path, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	_cleanup_buf_ struct buf text = BUF_INIT(CONFIG_MAX);
	int r = policy_read(path, &text, e);

	if (r == 0)
		r = bridge_policy_parse(path, buf_text(&text), text.len, &p, e);
	if (r == 0)
		(void)printf("policy %s is valid: %zu routes, %zu request headers, %zu response "
			     "headers\n",
			     p->name, p->routes.n, p->request_headers.n, p->response_headers.n);
	return r;
}

static int list(void)
{
	const char *name;

	for (size_t i = 0; (name = bridge_policy_builtin_name(i)); i++) {
		_cleanup_policy_ struct bridge_policy *p = NULL;

		if (bridge_policy_builtin(name, &p, NULL) == 0)
			(void)printf("%-20s built in, %zu routes\n", name, p->routes.n);
	}
	return 0;
}

/* --- explain ------------------------------------------------------------------------------ */

#define NO_SECRET "0123456789abcdef0123456789abcdef"
#define STAND_IN "credential-of-the-host"

static struct view text(const char *s)
{
	return (struct view){s, strlen(s)};
}

/* The guard itself is asked, so that this cannot say anything else than a run would meet. */
static int make_guard(const char *word, struct guard **ret, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	struct guard_config c = {.token = text(NO_SECRET),
				 .credential = text(STAND_IN),
				 .run_id = text("RUN"),
				 .agent_id = text("AGENT"),
				 .company_id = text("COMPANY"),
				 .task_id = text("TASK")};
	int r = policy_load(word, &p, e);

	if (r == 0)
		r = origin_parse("http://upstream.invalid", &c.origin, e);
	if (r < 0)
		return r;
	c.policy = p;
	return guard_new(&c, ret, e);
}

static void print_shown(struct view v)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)8 * BRIDGE_HEADER_BLOCK_MAX);

	(void)str_printable(&b, v.p, v.n);
	(void)fputs(buf_text(&b), stdout);
}

static void explain_allowed(const struct guard_verdict *v, const struct ask *a)
{
	char t[32], size[32];

	clock_human(v->limits.request_ns, t, sizeof(t));
	str_human_size(v->limits.body_max, size, sizeof(size));
	(void)printf("allowed  by route %s of policy %s\n", v->route_id, v->policy->name);
	(void)printf("sent     %s ", v->method_name);
	print_shown(v->target.all);
	(void)printf("\n");
	for (size_t i = 0; i < v->headers_len; i++) {
		(void)printf("header   %s: ", v->headers[i].name.p);
		if (strcmp(v->headers[i].name.p, v->policy->credential_header) == 0)
			(void)printf("%s(the host's credential)", v->policy->credential_prefix);
		else
			print_shown(v->headers[i].value);
		(void)printf("\n");
	}
	for (size_t i = 0; i < a->headers_len; i++) {
		bool passed = false;

		for (size_t k = 0; k < v->headers_len; k++)
			passed = passed || v->headers[k].value.p == a->headers[i].value.p;
		if (passed)
			continue;
		(void)printf("dropped  ");
		print_shown(a->headers[i].name);
		(void)printf("\n");
	}
	(void)printf("limits   body %s, %s%s, %s\n", v->limits.body_max ? size : "none", t,
		     v->limits.stream ? " to the head of the answer, which streams" : "",
		     v->safe ? "may be tried again" : "never tried again by itself");
}

static void explain_denied(const struct guard_verdict *v)
{
	(void)printf("denied   %d by rule %s of policy %s\n", v->reply.status, v->rule,
		     v->policy->name);
	(void)printf("answer   %.*s\n", (int)v->reply.body_len, v->reply.body);
	if (v->route_id)
		(void)printf("route    %s\n", v->route_id);
	if (strcmp(v->rule, "query.name") == 0)
		(void)printf("query    %s\n",
			     query_denied(&v->policy->query_denied, v->target.query));
	if (strncmp(v->rule, "route.", 6) != 0)
		return;
	for (size_t i = 0; i < v->policy->routes.n; i++) {
		struct route_table one = {.v = &v->policy->routes.v[i], .n = 1};
		unsigned other = 0;

		(void)route_match(&one, (enum method)0, &v->target, &other);
		if (other)
			(void)printf("near     %s\n", one.v->id);
	}
}

/* Exit status 0: allowed, 1: denied. */
static int explain(const struct ask *a, const char *method, const char *target, int *status,
		   struct err *e)
{
	struct guard_request q = {.token_in = GUARD_TOKEN_GIVEN,
				  .token = text(NO_SECRET),
				  .method = text(method),
				  .target = text(target),
				  .headers = a->headers,
				  .headers_len = a->headers_len,
				  .body_len = (int64_t)a->body};
	struct guard_verdict v;
	struct guard *g = NULL;
	int r = make_guard(a->policy ? a->policy : "paperclip", &g, e);

	if (r < 0)
		return r;
	guard_judge(g, &q, &v);
	if (v.allowed)
		explain_allowed(&v, a);
	else
		explain_denied(&v);
	*status = v.allowed ? 0 : 1;
	guard_verdict_done(&v);
	guard_free(g);
	return 0;
}

int cmd_policy(int argc, char **argv)
{
	struct ask a = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = "policy", .permute = true, .set = set, .arg = &a};
	_cleanup_strv_ char **words = NULL;
	struct err e = ERR_INIT;
	int status = 0, r = opt_parse(&p, argc - 1, argv + 1, &e);
	size_t n;

	words = p.words;
	n = strv_len(words);
	if (r == 0 && a.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r < 0)
		;
	else if ((n == 0 || (n == 1 && strcmp(words[0], "list") == 0)))
		r = list();
	else if (n == 2 && strcmp(words[0], "show") == 0)
		r = show(words[1], &e);
	else if (n == 2 && strcmp(words[0], "check") == 0)
		r = check(words[1], &e);
	else if (n == 3 && strcmp(words[0], "explain") == 0)
		r = explain(&a, words[1], words[2], &status, &e);
	else
		r = err_set(&e, ERR_USAGE,
			    "policy wants: list, show NAME, check FILE or explain METHOD PATH: "
			    "'airlock help policy'");
	return r < 0 ? cli_fail(&e) : status;
}
