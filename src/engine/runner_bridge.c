#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "bridge/audit.h"
#include "engine/runner_internal.h"

int runner_audit(struct runner *r, struct err *e)
{
	_cleanup_free_ char *path = path_join(r->o->run_dir, AUDIT_FILE);
	int fd =
	    path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

	return fd < 0 ? err_sys(e, errno, "file for the bridge's decisions in %s", r->o->run_dir)
		      : fd;
}

int runner_bridge_start(struct runner *r, struct err *e)
{
	struct apibridge_opts o = {
	    .q = r->q,
	    .run_id = r->q->api.run_id ? r->q->api.run_id : r->run.id,
	};
	_cleanup_fd_ int fd = runner_audit(r, e);
	int k;

	if (fd < 0)
		return fd;
	o.audit = fd;
	if (!r->spec.gateway)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the sandbox of this run was made without the gateway program: begin a "
		    "new run with --api");
	k = apibridge_start(&r->bridge, r->sb, &o, &r->env, e);
	r->o->bridge.used = k == 0;
	(void)snprintf(r->o->bridge.policy, sizeof(r->o->bridge.policy), "%s",
		       r->q->api.policy ? r->q->api.policy : "paperclip");
	return k;
}

void runner_bridge_watch(struct runner *r)
{
	char text[400];

	if (!apibridge_lost(&r->bridge))
		return;
	r->o->bridge.lost = true;
	(void)snprintf(r->o->bridge.why, sizeof(r->o->bridge.why), "%s", r->bridge.client.why);
	(void)snprintf(text, sizeof(text),
		       "the bridge is lost (%s): the command's API calls fail with 503 from now on",
		       r->o->bridge.why);
	runner_note(r, true, text);
}

void runner_bridge_end(struct runner *r)
{
	runner_bridge_watch(r);
	apibridge_stop(&r->bridge, r->sb);
	/* It died between the last look and now. */
	if (r->o->bridge.used && !r->bridge.client.done && !r->o->bridge.lost) {
		r->o->bridge.lost = true;
		(void)snprintf(r->o->bridge.why, sizeof(r->o->bridge.why), "%s",
			       r->bridge.client.why);
	}
	r->o->bridge.counts = r->bridge.client.counts;
}
