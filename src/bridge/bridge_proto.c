#include "bridge/bridge_proto.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "bridge/counts.h"

#define WITHOUT_LANDLOCK_BIT 1u
#define WITHOUT_SECCOMP_BIT 2u
#define SETUP_FIELDS 13
#define HAS_CHANNEL_BIT 4u
#define HAS_DIR_BIT 8u
#define HAS_AUDIT_BIT 16u
#define HAS_SHARED_BIT 32u
#define HAS_BOARD_BIT 64u
#define HAS_LISTENER_BIT 128u

const char *bridge_transport_mode(enum bridge_transport t)
{
	return t == BRIDGE_DIRECT ? "direct_v1" : t == BRIDGE_QUEUE ? "queue_v2" : "http2_v1";
}

static const char *const transports[] = {
    [BRIDGE_HTTP2] = "http2", [BRIDGE_QUEUE] = "queue", [BRIDGE_DIRECT] = "direct"};

const char *bridge_transport_name(enum bridge_transport t)
{
	return transports[t];
}

int bridge_transport_parse(const char *name, enum bridge_transport *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(transports); i++) {
		if (strcmp(transports[i], name) != 0)
			continue;
		*ret = (enum bridge_transport)i;
		return 0;
	}
	return -EINVAL;
}

static void fields(struct bridge_setup *s, struct view *ret[SETUP_FIELDS])
{
	struct view *all[SETUP_FIELDS] = {&s->upstream,		&s->token,   &s->nonce,
					  &s->credential,	&s->run_id,  &s->agent_id,
					  &s->company_id,	&s->task_id, &s->policy_name,
					  &s->policy_text,	&s->ca,	     &s->name,
					  &s->credential_header};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		ret[i] = all[i];
}

int bridge_put_setup(struct buf *b, const struct bridge_setup *setup)
{
	struct bridge_setup s = *setup;
	struct view *v[SETUP_FIELDS];

	fields(&s, v);
	(void)buf_u8(b, s.transport);
	(void)buf_u8(
	    b,
	    (uint8_t)((s.without_landlock ? WITHOUT_LANDLOCK_BIT : 0) |
		      (s.without_seccomp ? WITHOUT_SECCOMP_BIT : 0) |
		      (s.has_channel ? HAS_CHANNEL_BIT : 0) | (s.has_dir ? HAS_DIR_BIT : 0) |
		      (s.has_audit ? HAS_AUDIT_BIT : 0) | (s.has_shared ? HAS_SHARED_BIT : 0) |
		      (s.has_board ? HAS_BOARD_BIT : 0) | (s.has_listener ? HAS_LISTENER_BIT : 0)));
	for (size_t i = 0; i < ARRAY_LEN(v); i++)
		(void)buf_bytes(b, v[i]->p ? v[i]->p : "", v[i]->n);
	return b->err;
}

int bridge_get_setup(struct view in, struct bridge_setup *ret)
{
	struct view *v[SETUP_FIELDS];
	struct cursor c;
	uint8_t bits;

	*ret = (struct bridge_setup){0};
	fields(ret, v);
	cursor_init(&c, in.p, in.n);
	ret->transport = cursor_u8(&c);
	bits = cursor_u8(&c);
	ret->without_landlock = bits & WITHOUT_LANDLOCK_BIT;
	ret->without_seccomp = bits & WITHOUT_SECCOMP_BIT;
	ret->has_channel = bits & HAS_CHANNEL_BIT;
	ret->has_dir = bits & HAS_DIR_BIT;
	ret->has_audit = bits & HAS_AUDIT_BIT;
	ret->has_shared = bits & HAS_SHARED_BIT;
	ret->has_board = bits & HAS_BOARD_BIT;
	ret->has_listener = bits & HAS_LISTENER_BIT;
	for (size_t i = 0; i < ARRAY_LEN(v); i++)
		*v[i] = cursor_bytes(&c, FRAME_MAX);
	return cursor_end(&c) && ret->transport <= BRIDGE_DIRECT ? 0 : -EPROTO;
}

/* What counts.h asks of it. */
_Static_assert(sizeof(struct bridge_counts) == 9 * sizeof(uint64_t), "counts and nothing else");

int bridge_put_counts(struct buf *b, const struct bridge_counts *c)
{
	return counts_put(b, c, sizeof(*c));
}

int bridge_get_counts(struct view v, struct bridge_counts *ret)
{
	return counts_get(v, ret, sizeof(*ret));
}
