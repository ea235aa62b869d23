#include "cli/summary.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/summary_internal.h"
#include "engine/netproxy.h"

/* What an installation makes again: said in one line, there may be one in each package. */
static void left_out_heavy(const struct transfer *t, size_t n)
{
	_cleanup_buf_ struct buf path = BUF_INIT((size_t)1 << 20);

	for (size_t i = 0; i < t->in.notes_len && !path.len; i++)
		if (strcmp(t->in.notes[i].reason, "heavy") == 0)
			(void)str_printable(&path, t->in.notes[i].path,
					    strlen(t->in.notes[i].path));
	cli_say("left out as heavy: %zu (%s%s); send one with --include NAME", n, buf_text(&path),
		n > 1 ? ", ..." : "");
}

static void held_back(const struct transfer *t)
{
	size_t shown = 0, heavy = 0, all;

	if (!t->in_done)
		return;
	for (size_t i = 0; i < t->in.notes_len; i++)
		heavy += strcmp(t->in.notes[i].reason, "heavy") == 0;
	all = t->in.notes_len - heavy;
	if (all)
		cli_say("not sent: %zu", all);
	for (size_t i = 0; i < t->in.notes_len && shown < SUMMARY_NAMES; i++) {
		const struct sync_note *n = &t->in.notes[i];
		_cleanup_buf_ struct buf path = BUF_INIT((size_t)1 << 20), why = BUF_INIT(1 << 16);

		if (strcmp(n->reason, "heavy") == 0)
			continue;
		shown++;
		/* The note names the submodule; what stayed behind is its .git only. */
		(void)buf_putf(&path, "%s%s", n->path,
			       strcmp(n->reason, "submodule_git") == 0 ? "/.git" : "");
		(void)buf_puts(&why, summary_reason(n->reason));
		if (n->detail) {
			(void)buf_puts(&why, " (");
			(void)str_printable(&why, n->detail, strlen(n->detail));
			(void)buf_putc(&why, ')');
		}
		summary_say_path("", buf_text(&path), buf_text(&why));
	}
	if (all > shown)
		cli_say("  ... and %zu more (the record has all)", all - shown);
	if (heavy)
		left_out_heavy(t, heavy);
}

/* The network layer has a switch of its own. */
static const char *switched_by(const struct request *q, const char *layer)
{
	return q->net == NET_HOST && strcmp(layer, "network namespace") == 0 ? "--net host"
									     : "--without";
}

static void isolation(const struct request *q, const struct run_outcome *o)
{
	size_t on = 0;

	if (!q->provider->isolates) {
		cli_say("%s", q->provider->statement);
		for (size_t i = 0; i < o->isolation_len; i++)
			if (strcmp(o->isolation[i].layer, "guest") == 0)
				cli_say(
				    "without a guest program there, slower, by its shell and tar: %s",
				    o->isolation[i].detail);
		return;
	}
	for (size_t i = 0; i < o->isolation_len; i++)
		on += strcmp(o->isolation[i].state, "in force") == 0;
	cli_say("isolation: %zu of %zu layers in force; network %s", on, o->isolation_len,
		q->net != NET_HOST ? q->net_allow ? "by allow-list" : "none"
		: q->provider->elsewhere
		    ? "HOST (the command can reach everything that machine can)"
		    : "HOST (the command can reach everything this host can)");
	/* Whose kernel it is, is part of what the layers are worth. */
	if (q->provider->elsewhere)
		cli_say("%s", q->provider->statement);
	for (size_t i = 0; i < o->isolation_len; i++)
		if (strcmp(o->isolation[i].state, "switched off") == 0)
			cli_say("WITHOUT %s: switched off by %s", o->isolation[i].layer,
				switched_by(q, o->isolation[i].layer));
}

static void audit_lost(const char *who, uint64_t n)
{
	if (n)
		cli_say(
		    "%s: %llu decisions are in no audit line: the file could not be written, or "
		    "the helper was killed",
		    who, (unsigned long long)n);
}

/* A run that was given an API and never called it is worth a look (FR-B064). */
static void bridge(const struct bridge_outcome *o)
{
	const struct bridge_counts *c = &o->counts;
	char who[64] = "bridge";

	if (!o->used)
		return;
	if (o->name[0])
		(void)snprintf(who, sizeof(who), "upstream %s", o->name);
	if (o->lost)
		cli_say("%s: LOST during the run: %s", who, o->why);
	else if (o->restarts)
		cli_say("%s: it was interrupted and started again %u time%s", who, o->restarts,
			o->restarts == 1 ? "" : "s");
	if (c->requests == 0) {
		cli_say("%s: policy %s; no request was made", who, o->policy);
		return;
	}
	cli_say("%s: policy %s; %llu requests, %llu forwarded, %llu refused, %llu failed", who,
		o->policy, (unsigned long long)c->requests, (unsigned long long)c->forwarded,
		(unsigned long long)c->refused, (unsigned long long)c->failed);
	if (c->indeterminate)
		cli_say(
		    "%s: of %llu requests that failed it is not known whether they had their effect",
		    who, (unsigned long long)c->indeterminate);
	if (c->unanswered)
		cli_say("%s: %llu answers found no place in the queue's directory", who,
			(unsigned long long)c->unanswered);
	audit_lost(who, c->audit_lost);
}

static void network_refused(const struct run_outcome *o)
{
	char *const *v = o->net.refused;

	for (size_t i = 0; v && v[i] && v[i + 1]; i += 2) {
		_cleanup_free_ char *flag = netproxy_flag(v[i], v[i + 1]);

		if (i / 2 == SUMMARY_NAMES) {
			cli_say("network: ... and %zu more places (airlock audit %s)",
				strv_len(v) / 2 - i / 2, o->id);
			return;
		}
		if (flag)
			cli_say("network: REFUSED %s (%s); %s would let it through", v[i], v[i + 1],
				flag);
		else
			cli_say("network: REFUSED %s (%s)", v[i], v[i + 1]);
	}
}

static void network(const struct request *q, const struct run_outcome *o)
{
	const struct proxy_counts *c = &o->net.counts;
	char up[32], down[32];

	if (!o->net.used)
		return;
	if (o->net.lost)
		cli_say("network: proxy LOST during the run: %s", o->net.why);
	str_human_size(c->bytes_up, up, sizeof(up));
	str_human_size(c->bytes_down, down, sizeof(down));
	cli_say("network: %zu allowed; %llu connections, %llu refused, %llu failed; %s out, %s in",
		strv_len(q->net_allow), (unsigned long long)c->connections,
		(unsigned long long)c->refused, (unsigned long long)c->failed, up, down);
	audit_lost("network", c->audit_lost);
	network_refused(o);
}

static void phases(const struct run_outcome *o)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	int64_t sum = 0;
	char t[32];

	for (size_t i = 0; i < o->phases_len; i++) {
		clock_human(o->phases[i].duration_ns, t, sizeof(t));
		(void)buf_putf(&b, "%s%s %s", i ? ", " : "", o->phases[i].name, t);
		sum += o->phases[i].duration_ns;
	}
	clock_human(sum, t, sizeof(t));
	cli_say("time: %s; sum %s", buf_text(&b), t);
}

static void withheld(const struct run_outcome *o)
{
	char text[512];

	if (!o->xfer.withheld)
		return;
	transfer_withheld_text(&o->xfer, o->id, text, sizeof(text));
	cli_say("%s", text);
}

static void where(const struct run_outcome *o)
{
	if (o->log_error)
		cli_say("the run log is not whole: %s; %llu bytes of output are missing in it",
			strerror(o->log_error), (unsigned long long)o->log_dropped);
	else if (o->log_dropped)
		cli_say(
		    "limit run log: %llu bytes of output are not kept (change it with --log-limit)",
		    (unsigned long long)o->log_dropped);
	if (o->id[0])
		cli_say("run %s: airlock logs %s; files in %s", o->id, o->id,
			o->run_dir ? o->run_dir : "-");
	withheld(o);
	if (o->lease_state == LEASE_RECOVERABLE)
		cli_say(
		    "the work is KEPT in the sandbox's storage: 'airlock recover %s' brings it back, 'airlock rm --force %s' gives it up",
		    o->id, o->id);
	else if (o->lease_state == LEASE_KEPT && o->pending)
		cli_say(
		    "the sandbox is kept, and with it work that is NOT here: 'airlock exec %s -- true' tries again, "
		    "'airlock recover %s' ends the sandbox and brings it back",
		    o->id, o->id);
	else if (o->lease_state == LEASE_KEPT)
		cli_say(
		    "the sandbox is kept: 'airlock exec %s -- CMD', 'airlock shell %s', 'airlock rm %s'",
		    o->id, o->id, o->id);
	else if (o->lease_state != LEASE_RELEASED && o->id[0])
		cli_say(
		    "clean-up is not confirmed (lease %s is %s): the next run tries again, or 'airlock rm %s'",
		    o->lease_id, lease_state_name(o->lease_state), o->id);
}

/* Of a run in place on another machine: also to whoever wants only losses told, for nothing else stands between them. */
static void git_there(const struct run_outcome *o)
{
	const struct inplace_report *g = &o->git_there;
	const char *dir = o->run_dir ? o->run_dir : "";

	if (!g->repo || !o->command_ran)
		return;
	if (!g->compared)
		cli_say(
		    "NOT COMPARED: what git would execute there after this run is not known; what it was before: %s/git-before",
		    dir);
	if (g->changed)
		cli_say(
		    "CHANGED THERE, and git would execute or obey it: %s; left as it is; both versions: git-before and git-after in %s",
		    g->changed, dir);
	if (g->refs)
		cli_say("refs that differ there: %s", g->refs);
}

void summary_print(const struct request *q, const struct run_outcome *o)
{
	cli_say("---- summary: exit status %d ----", o->exit_status);
	summary_results(&o->xfer, o->run_dir ? o->run_dir : "");
	git_there(o);
	held_back(&o->xfer);
	if (o->command_ran)
		isolation(q, o);
	bridge(&o->bridge);
	for (size_t i = 0; i < ARRAY_LEN(o->named); i++)
		bridge(&o->named[i]);
	network(q, o);
	phases(o);
	where(o);
}

/* What Airlock itself did to the command: its status alone could be the command's own. */
static void limits_hit(const struct request *q, const struct run_outcome *o)
{
	char t[48];

	if (o->cmd.end == END_TIMEOUT) {
		clock_human((int64_t)q->timeout.v, t, sizeof(t));
		cli_say("limit time: the command was ended after %s (set by %s)", t,
			q->timeout.source);
	}
	if (o->cmd.oom_kills)
		cli_say("limit memory: %u process%s killed at the limit (set by %s)",
			o->cmd.oom_kills, o->cmd.oom_kills == 1 ? " was" : "es were",
			q->memory.source);
}

/* The status is the command's, which knows nothing of it. */
static void output_lost(const struct run_outcome *o, const char *name, int error)
{
	if (error)
		cli_say(
		    "%s of the command could not be written to its end: %s; airlock logs %s has it",
		    name, strerror(error), o->id);
}

void summary_losses(const struct request *q, const struct run_outcome *o)
{
	const struct transfer *t = &o->xfer;

	limits_hit(q, o);
	output_lost(o, "stdout", o->cmd.out_error);
	output_lost(o, "stderr", o->cmd.err_error);
	summary_result_losses(t, o->run_dir ? o->run_dir : "");
	if (!o->git_there.compared || o->git_there.changed)
		git_there(o);
	network_refused(o);
	withheld(o);
	if (o->lease_state == LEASE_RECOVERABLE || o->pending)
		cli_say("the work is kept: 'airlock recover %s'", o->id);
}
