#include "engine/request.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"

static void set_default(struct setting *s, uint64_t v)
{
	s->v = v;
	(void)snprintf(s->source, sizeof(s->source), "built-in default");
}

void request_init(struct request *q)
{
	*q = (struct request){0};
	set_default(&q->timeout, 0);
	set_default(&q->memory, 0);
	set_default(&q->pids, 0);
	set_default(&q->cpu, 0);
	set_default(&q->log_limit, LOG_BYTES_DEFAULT);
	(void)snprintf(q->net_source, sizeof(q->net_source), "built-in default");
}

void api_request_done(struct api_request *a)
{
	if (a->key)
		sodium_memzero(a->key, strlen(a->key));
	free(a->key);
	free(a->url);
	free(a->key_file);
	free(a->policy);
	free(a->run_id);
	free(a->name);
	free(a->header);
	strv_free(a->url_vars);
	strv_free(a->token_vars);
	*a = (struct api_request){0};
}

void request_done(struct request *q)
{
	strv_free(q->argv);
	strv_free(q->vars);
	strv_free(q->clis);
	strv_free(q->net_allow);
	strv_free(q->net_pins);
	strv_free(q->include);
	strv_free(q->exclude);
	strv_free(q->maps);
	free(q->image);
	strv_free(q->remote);
	for (size_t i = 0; i < q->binds_len; i++) {
		free(q->binds[i].src);
		free(q->binds[i].dst);
	}
	free(q->install);
	api_request_done(&q->api);
	for (size_t i = 0; i < q->upstreams_len; i++)
		api_request_done(&q->upstreams[i]);
	*q = (struct request){0};
}

static int line(char ***v, const char *name, const char *value, const char *source, const char *how)
{
	char b[512];

	(void)snprintf(b, sizeof(b), "limit %s: %s (%s; change with %s)", name, value, source, how);
	return strv_add(v, b);
}

int request_limits(const struct request *q, char ***v)
{
	char t[48];
	int r;

	if (q->timeout.v)
		clock_human((int64_t)q->timeout.v, t, sizeof(t));
	else
		(void)snprintf(t, sizeof(t), "none");
	r = line(v, "time", t, q->timeout.source, "--timeout");
	if (q->memory.v)
		str_human_size(q->memory.v, t, sizeof(t));
	else
		(void)snprintf(t, sizeof(t), "none");
	if (r == 0)
		r = line(v, "memory", t, q->memory.source, "--memory");
	if (q->pids.v)
		(void)snprintf(t, sizeof(t), "%llu", (unsigned long long)q->pids.v);
	else if (q->provider && q->provider->isolates)
		(void)snprintf(t, sizeof(t), "%d", PIDS_DEFAULT);
	else
		(void)snprintf(t, sizeof(t), "none");
	if (r == 0)
		r = line(v, "processes", t, q->pids.source, "--pids");
	if (q->cpu.v)
		(void)snprintf(t, sizeof(t), "%llu.%03llu", (unsigned long long)q->cpu.v / 1000,
			       (unsigned long long)q->cpu.v % 1000);
	else
		(void)snprintf(t, sizeof(t), "none");
	if (r == 0)
		r = line(v, "cpus", t, q->cpu.source, "--cpus");
	if (q->log_limit.v)
		str_human_size(q->log_limit.v, t, sizeof(t));
	else
		(void)snprintf(t, sizeof(t), "none");
	if (r == 0)
		r = line(v, "run log", t, q->log_limit.source, "--log-limit");
	return r;
}
