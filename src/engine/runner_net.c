#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/runner_internal.h"

int runner_net_start(struct runner *r, struct err *e)
{
	_cleanup_strv_ char **warnings = NULL;
	_cleanup_fd_ int audit = runner_audit(r, e);
	const struct netproxy_opts o = {.q = r->q, .run_id = r->run.id, .audit = audit};
	int k;

	if (audit < 0)
		return audit;
	if (!r->spec.gateway)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the sandbox of this run was made without the gateway program: begin a "
		    "new run with --net allow=...");
	k = netproxy_warnings(r->q, &warnings);
	for (size_t i = 0; k == 0 && i < strv_len(warnings); i++)
		runner_note(r, true, warnings[i]);
	if (k < 0)
		return err_set(e, ERR_NOMEM, "network: out of memory");
	k = netproxy_start(&r->net, r->sb, &o, &r->env, e);
	r->o->net.used = k == 0;
	return k;
}

void runner_net_watch(struct runner *r)
{
	char text[400];

	if (r->sb && r->sb->away)
		return;
	if (!netproxy_lost(&r->net))
		return;
	r->o->net.lost = true;
	(void)snprintf(r->o->net.why, sizeof(r->o->net.why), "%s", r->net.client.why);
	(void)snprintf(text, sizeof(text),
		       "the network proxy is lost (%s): the command has no network from now on",
		       r->o->net.why);
	runner_note(r, true, text);
}

void runner_net_end(struct runner *r)
{
	runner_net_watch(r);
	netproxy_stop(&r->net, r->sb);
	if (r->o->net.used && !r->net.client.done && !r->o->net.lost) {
		r->o->net.lost = true;
		(void)snprintf(r->o->net.why, sizeof(r->o->net.why), "%s", r->net.client.why);
	}
	r->o->net.counts = r->net.client.counts;
	r->o->net.refused = TAKE_PTR(r->net.client.refused);
	proxy_client_done(&r->net.client);
}
