#include "door2.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "policy/bridge_policy.h"

/* An upstream that answers at its next turn: as the target says, well, in pieces, or not at all. */
struct upstream_call {
	struct upstream_call *next;
	struct upstream_request q;
	char mood;
	size_t left;
	bool headed, waits;
};
static struct upstream_call *calls;
uint64_t door2_started;

struct upstream_call *upstream_start(struct upstream *u, const struct upstream_request *q)
{
	struct upstream_call *c = calloc(1, sizeof(*c));
	unsigned keys = 0, runs = 0;

	(void)u;
	MUST(c != NULL);
	door2_started++;
	MUST(q->method && q->target.n && q->target.p[0] == '/');
	for (size_t i = 0; i < q->target.n; i++)
		MUST(q->target.p[i] > 0x20 && q->target.p[i] < 0x7f && q->target.p[i] != '\\');
	for (size_t i = 0; i < q->headers_len; i++) {
		MUST(header_name_ok(q->headers[i].name) && header_value_ok(q->headers[i].value));
		if (header_name_is(q->headers[i].name, "authorization")) {
			MUST(q->headers[i].value.n == strlen("Bearer " DOOR2_SECRET) &&
			     memcmp(q->headers[i].value.p, "Bearer " DOOR2_SECRET,
				    q->headers[i].value.n) == 0);
			keys++;
		}
		runs += header_name_is(q->headers[i].name, "x-paperclip-run-id");
		MUST(!header_name_is(q->headers[i].name, "host"));
		MUST(!header_name_is(q->headers[i].name, "content-length"));
		MUST(!header_name_is(q->headers[i].name, "cookie"));
	}
	MUST(keys == 1 && runs == 1);
	MUST(q->body.n <= q->limits.body_max);
	c->q = *q;
	c->mood = q->target.p[q->target.n - 1];
	c->left = c->mood == 'b' ? 300000 : 20;
	c->next = calls;
	calls = c;
	return c;
}

void upstream_resume(struct upstream_call *c)
{
	c->waits = false;
}

bool upstream_cancel(struct upstream_call *c)
{
	struct upstream_call **at = &calls;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
	return true;
}

static void end(struct upstream_call *c, enum upstream_end how)
{
	struct upstream_request q = c->q;

	(void)upstream_cancel(c);
	q.end(q.arg, how, how != UP_UNREACHABLE);
}

static bool work(struct upstream_call *c)
{
	static const struct header h[] = {{{"content-type", 12}, {"a/b", 3}},
					  {{"set-cookie", 10}, {"a=b", 3}}};
	static const char text[16384];
	size_t n = c->left < sizeof(text) ? c->left : sizeof(text);

	if (c->waits || c->mood == 'z')
		return false;
	if (!c->headed) {
		c->headed = true;
		if (c->mood == 'u')
			end(c, UP_UNREACHABLE);
		else if (c->mood == 'l')
			end(c, UP_LOST);
		else if (!c->q.head(c->q.arg, c->mood == 'n' ? 204 : 200, h, 2))
			end(c, UP_BAD);
		return true;
	}
	switch (n ? c->q.data(c->q.arg, text, n) : UPSTREAM_TAKEN) {
	case UPSTREAM_WAIT:
		c->waits = true;
		return false;
	case UPSTREAM_ABORT:
		end(c, UP_LOST);
		return true;
	default:
		c->left -= n;
	}
	if (c->left == 0)
		end(c, UP_OK);
	return true;
}

void door2_turn(void)
{
	for (struct upstream_call *c = calls, *next; c; c = next) {
		next = c->next;
		if (work(c))
			next = calls;
		if (next == c)
			break;
	}
}

bool door2_idle(void)
{
	return calls == NULL;
}

struct guard *door2_guard(void)
{
	struct bridge_policy *p = NULL;
	struct guard_config c = {.token = {DOOR2_TOKEN, strlen(DOOR2_TOKEN)},
				 .credential = {DOOR2_SECRET, strlen(DOOR2_SECRET)},
				 .run_id = {"run", 3}};
	struct guard *g = NULL;

	MUST(bridge_policy_builtin("paperclip", &p, NULL) == 0);
	MUST(origin_parse("http://upstream.invalid", &c.origin, NULL) == 0);
	c.policy = p;
	MUST(guard_new(&c, &g, NULL) == 0);
	bridge_policy_unref(p);
	return g;
}
