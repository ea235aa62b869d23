/* A policy as the text of a policy file. */
#include "policy/bridge_policy.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

static void json_done(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ _cleanup_(json_done)

static json_t *names_json(const struct header_list *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n; i++)
		(void)json_array_append_new(a, json_string(l->v[i]));
	return a;
}

static void put_time(json_t *o, const char *name, int64_t ns)
{
	char t[32];

	(void)snprintf(t, sizeof(t), "%" PRId64 "ms", ns / NS_PER_MS);
	(void)json_object_set_new(o, name, json_string(t));
}

/* What differs from the limits of the policy; all of them when there is nothing to differ from. */
static json_t *limits_json(const struct bridge_limits *l, const struct bridge_limits *base)
{
	json_t *o = json_object();

	if (!base || l->body_max != base->body_max)
		(void)json_object_set_new(o, "body", json_integer((json_int_t)l->body_max));
	if (!base || l->stream != base->stream)
		(void)json_object_set_new(o, "stream", json_boolean(l->stream));
	if (!base || l->response_max != base->response_max)
		(void)json_object_set_new(o, "response",
					  l->response_max == UINT64_MAX
					      ? json_string("unlimited")
					      : json_integer((json_int_t)l->response_max));
	if (!base || l->request_ns != base->request_ns)
		put_time(o, "request_time", l->request_ns);
	if (!base || l->idle_ns != base->idle_ns)
		put_time(o, "idle_time", l->idle_ns);
	if (!base || l->upload_ns != base->upload_ns)
		put_time(o, "upload_time", l->upload_ns);
	return o;
}

static json_t *route_json(const struct bridge_policy *p, const struct route *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(BRIDGE_PATH_MAX + 128);
	json_t *limits = limits_json(&r->limits, &p->limits), *o;

	for (unsigned m = METHOD_GET; m <= METHOD_DELETE; m <<= 1)
		if (r->methods & m)
			(void)buf_putf(&b, "%s%s", b.len ? "," : "", method_name((enum method)m));
	(void)buf_putf(&b, " %s", r->pattern);
	if (strcmp(r->id, buf_text(&b)) == 0 && r->headers.n == 0 &&
	    json_object_size(limits) == 0) {
		json_decref(limits);
		return json_string(buf_text(&b));
	}
	o = json_object();
	(void)json_object_set_new(o, "route", json_string(buf_text(&b)));
	if (strcmp(r->id, buf_text(&b)) != 0)
		(void)json_object_set_new(o, "id", json_string(r->id));
	if (r->headers.n)
		(void)json_object_set_new(o, "request_headers", names_json(&r->headers));
	if (json_object_size(limits))
		(void)json_object_set(o, "limits", limits);
	json_decref(limits);
	return o;
}

static json_t *identity_json(const struct bridge_policy *p)
{
	json_t *o = json_object();

	for (size_t i = 0; i < p->identity_len; i++)
		(void)json_object_set_new(o, p->identity[i].name,
					  json_string(p->identity[i].fixed));
	return o;
}

int bridge_policy_print(const struct bridge_policy *p, struct buf *out)
{
	_cleanup_json_ json_t *j = json_object();
	_cleanup_free_ char *text = NULL;
	json_t *limits = limits_json(&p->limits, NULL), *routes = json_array(), *up = json_object();

	(void)json_object_set_new(j, "version", json_integer(1));
	(void)json_object_set_new(j, "name", json_string(p->name));
	(void)json_object_set_new(limits, "queue", json_integer(p->queue_max));
	(void)json_object_set_new(limits, "streams", json_integer(p->streams_max));
	(void)json_object_set_new(limits, "pace", json_integer(p->pace));
	(void)json_object_set_new(j, "limits", limits);
	(void)json_object_set_new(j, "request_headers", names_json(&p->request_headers));
	(void)json_object_set_new(j, "response_headers", names_json(&p->response_headers));
	(void)json_object_set_new(j, "query_denied", names_json(&p->query_denied));
	(void)json_object_set_new(j, "token_headers", names_json(&p->token_headers));
	(void)json_object_set_new(j, "identity_headers", identity_json(p));
	(void)json_object_set_new(j, "credential",
				  json_pack("{s:s,s:s}", "header", p->credential_header, "prefix",
					    p->credential_prefix));
	for (size_t i = 0; i < p->upstreams_len; i++)
		(void)json_object_set_new(up, p->upstreams[i].name,
					  json_string(p->upstreams[i].origin.text));
	(void)json_object_set_new(j, "upstreams", up);
	for (size_t i = 0; i < p->routes.n; i++)
		(void)json_array_append_new(routes, route_json(p, &p->routes.v[i]));
	(void)json_object_set_new(j, "routes", routes);
	text = json_dumps(j, JSON_INDENT(2));
	if (!text)
		return -ENOMEM;
	(void)buf_puts(out, text);
	return buf_putc(out, '\n');
}
