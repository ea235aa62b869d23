/* Policy files: what was accepted prints and reads again as the same policy, and no list holds what none may hold. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "policy/bridge_policy.h"

static void lists(const struct header_list *l, bool token)
{
	MUST(l->n <= POLICY_HEADERS_MAX);
	for (size_t i = 0; i < l->n; i++) {
		MUST(header_name_ok((struct view){l->v[i], strlen(l->v[i])}));
		MUST(!header_forbidden(l->v[i]) ||
		     (token && strcmp(l->v[i], "authorization") == 0));
		MUST(i == 0 || strcmp(l->v[i - 1], l->v[i]) < 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct buf a = BUF_INIT(FUZZ_SEED_MAX), b = BUF_INIT(FUZZ_SEED_MAX);
	struct bridge_policy *one = NULL, *two = NULL;
	struct err e = ERR_INIT;

	if (bridge_policy_parse("f", (const char *)p, n, &one, &e) < 0) {
		MUST(e.code != ERR_NONE && e.text[0]);
		for (const char *c = e.text; *c; c++)
			MUST((unsigned char)*c >= 0x20 && *c != 0x7f);
		return 0;
	}
	MUST(one->refs == 1 && one->routes.n > 0 && one->routes.n <= POLICY_ROUTES_MAX);
	lists(&one->request_headers, false);
	lists(&one->response_headers, false);
	lists(&one->token_headers, true);
	for (size_t i = 0; i < one->routes.n; i++) {
		lists(&one->routes.v[i].headers, false);
		MUST(one->routes.v[i].methods && one->routes.v[i].limits.request_ns > 0);
	}
	/* What we set never comes from inside. */
	for (size_t i = 0; i < one->identity_len; i++)
		MUST(!header_list_find(&one->request_headers,
				       (struct view){one->identity[i].name,
						     strlen(one->identity[i].name)}));
	MUST(bridge_policy_print(one, &a) == 0);
	if (a.len <= CONFIG_MAX) {
		MUST(bridge_policy_parse("g", a.data, a.len, &two, &e) == 0);
		MUST(bridge_policy_print(two, &b) == 0);
		MUST(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
	}
	bridge_policy_unref(one);
	bridge_policy_unref(two);
	buf_done(&a);
	buf_done(&b);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "{\"version\":1,\"name\":\"t\",\"routes\":[\"GET /a\"]}",
	    "{\"version\":1,\"name\":\"t\",\"limits\":{\"body\":\"1M\",\"stream\":true,\"response\":\"unlimited\","
	    "\"request_time\":\"10s\",\"queue\":8},\"request_headers\":[\"accept\"],\"response_headers\":[\"etag\"],"
	    "\"token_headers\":[\"x-api-key\"],\"identity_headers\":{\"x-run\":\"{run}\",\"user-agent\":\"a\"},"
	    "\"credential\":{\"header\":\"x-key\",\"prefix\":\"\"},\"upstreams\":{\"m\":\"https://[::1]:8\"},"
	    "\"routes\":[\"GET,HEAD /v1/{id}\",{\"route\":\"POST /v1/{rest...}\",\"id\":\"r\","
	    "\"request_headers\":[\"x-b\"],\"limits\":{\"body\":9}}]}",
	    "{\"version\":1,\"name\":\"t\",\"request_headers\":[\"cookie\"],\"routes\":[\"GET /a\"]}",
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
