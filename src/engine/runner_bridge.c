#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "bridge/audit.h"
#include "engine/interrupt.h"
#include "engine/runner_internal.h"

int runner_audit(struct runner *r, struct err *e)
{
	_cleanup_free_ char *path = path_join(r->o->run_dir, AUDIT_FILE);
	int fd =
	    path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

	return fd < 0 ? err_sys(e, errno, "file for the bridge's decisions in %s", r->o->run_dir)
		      : fd;
}

static void bridge_note(void *arg, bool bad, const char *text)
{
	runner_note(arg, bad, text);
}

static int start(struct runner *r, const struct api_request *api, struct apibridge *b,
		 struct bridge_outcome *o, struct err *e)
{
	_cleanup_fd_ int fd = runner_audit(r, e);
	const struct apibridge_opts opts = {
	    .q = r->q,
	    .api = api,
	    .run_id = r->q->api.run_id ? r->q->api.run_id : r->run.id,
	    .audit = fd,
	    .lease_dir = r->lease_dir,
	    .cancel = interrupt_first(),
	    .note = bridge_note,
	    .arg = r,
	};
	int k;

	if (fd < 0)
		return fd;
	if (!r->spec.gateway)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the sandbox of this run was made without the gateway program: begin a "
		    "new run with --api or --upstream");
	k = apibridge_start(b, r->sb, &opts, &r->env, e);
	o->used = k == 0;
	(void)snprintf(o->policy, sizeof(o->policy), "%s", api->policy ? api->policy : "paperclip");
	(void)snprintf(o->name, sizeof(o->name), "%s", api->name ? api->name : "");
	return api->name ? err_wrap(e, k, "upstream %s", api->name) : k;
}

static bool may_listen(const struct api_request *a)
{
	return a->url && (a->transport == API_BEST || a->transport == API_DIRECT);
}

unsigned runner_bridge_sockets(const struct request *q)
{
	unsigned n = may_listen(&q->api);

	for (size_t i = 0; i < q->upstreams_len; i++)
		n += may_listen(&q->upstreams[i]);
	return n;
}

int runner_bridge_start(struct runner *r, struct err *e)
{
	int k = r->q->api.url ? start(r, &r->q->api, &r->bridge, &r->o->bridge, e) : 0;

	for (size_t i = 0; k == 0 && i < r->q->upstreams_len; i++)
		k = start(r, &r->q->upstreams[i], &r->named[i], &r->o->named[i], e);
	return k;
}

static void watch(struct runner *r, struct apibridge *b, struct bridge_outcome *o)
{
	char text[400];

	if (!apibridge_lost(b))
		return;
	o->lost = true;
	(void)snprintf(o->why, sizeof(o->why), "%s", b->link.why);
	(void)snprintf(text, sizeof(text),
		       "the bridge%s%s is lost (%s): the command's API calls fail from now on",
		       o->name[0] ? " to " : "", o->name, o->why);
	runner_note(r, true, text);
}

void runner_bridge_watch(struct runner *r)
{
	/* What it would start anew could not be reached either. */
	if (r->sb && r->sb->away)
		return;
	watch(r, &r->bridge, &r->o->bridge);
	for (size_t i = 0; i < r->q->upstreams_len; i++)
		watch(r, &r->named[i], &r->o->named[i]);
}

static void stop(struct runner *r, struct apibridge *b, struct bridge_outcome *o)
{
	o->restarts = b->link.restarts;
	apibridge_stop(b, r->sb);
	o->counts = b->counts;
}

void runner_bridge_end(struct runner *r)
{
	runner_bridge_watch(r);
	stop(r, &r->bridge, &r->o->bridge);
	for (size_t i = 0; i < r->q->upstreams_len; i++)
		stop(r, &r->named[i], &r->o->named[i]);
}
