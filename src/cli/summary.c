#include "cli/summary.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/netproxy.h"

struct word {
	const char *token, *words;
};

/* Stable rule words of door 1 in plain words, with what to do. Unknown ones are shown as they are. */
static const struct word rules[] = {
    /* refused */
    {"link_escape", "a link that points outside the workspace; make it relative and inside"},
    {"link_hops", "a link through too many other links"},
    {"limit", "a link that takes too many steps to follow"},
    {"through_link", "lies behind a link; what a link leads to is not written"},
    {"git_metadata", "git's own files, hooks and configuration never come back"},
    {"special_file", "devices, FIFOs and sockets never come back"},
    {"hardlink_refused", "a hard link to a file that was refused"},
    {"hardlink_target", "a hard link to a file that did not come back"},
    {"reserved_name", "a name that Airlock or the system reserves; rename it"},
    {"case_collision", "differs from another name only in case, which is one file here; rename it"},
    {"name_too_long", "the name is too long; shorten it"},
    {"target_too_long", "the link's target is too long"},
    {"no_links", "the file system here has no symbolic links, and hard links come that way"},
    {"unreadable", "could not be read in the sandbox, or changed each time; here it is as it was"},
    {"too_large", "the file is too large"},
    /* conflicts */
    {"both_added", "added here and in the sandbox"},
    {"both_changed", "changed here and in the sandbox"},
    {"mode_both_changed", "permissions were changed here and in the sandbox; yours stand"},
    {"deleted_in_sandbox", "deleted in the sandbox, but changed here"},
    {"type_changed", "became another kind of file on one side, changed on the other"},
    {"host_special", "is a device, FIFO or socket here"},
    {"changed_meanwhile", "was changed here while the results came back"},
    {"dir_has_changes", "became a file in the sandbox, but the directory here has changes"},
    {"parent_link", "a directory above it is a link here; nothing is written through links"},
    {"parent_not_dir", "what should be a directory above it is a file here"},
    /* failures */
    {"permission_denied", "you may not write it here"},
    {"other_filesystem", "lies on another file system than the workspace"},
    {"not_supported", "the file system here cannot keep that"},
    {"no_space", "the disk or the quota is full"},
    {"busy", "is in use here"},
    {"io_error", "the system reported an error"},
    {"no_run_directory", "the directory of its run is not known here"},
    {"foreign_journal",
     "a journal that was not written by this Airlock here: left alone, nothing of it was done"},
    {"foreign_tree", "what is staged there is not what was staged: left where it is"},
    {"base_missing", "the copy that was sent in is damaged"},
    {"dir", "directory"},
};

static const struct word reasons[] = {
    {"secret", "looks like a credential; send it with --include"},
    {"unreadable", "cannot be read by you"},
    {"socket", "is a socket"},
    {"fifo", "is a FIFO"},
    {"device", "is a device"},
    {"too_long", "has a name or a path that is too long: at most 255 and 4095 bytes"},
    {"too_deep",
     "lies deeper than 127 directories; nothing below it was sent: move it up, or leave it out with --exclude"},
    {"changed", "kept changing while it was read"},
    {"vanished", "went away while it was read"},
    {"mount", "is another file system mounted here"},
    {"submodule_git", "is a submodule's git directory; its files were sent"},
    {"git_pointer",
     "points to a repository that does not point back; files were sent, history was not"},
    {"git_missing", "git is not installed; files were sent, history was not"},
    {"git_failed", "git could not read the repository; files were sent, history was not"},
    {"git_timeout", "git took too long; files were sent, history was not"},
    {"no_match", "matches nothing"},
};

static const char *plain(const struct word *w, size_t n, const char *token)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(w[i].token, token) == 0)
			return w[i].words;
	return token;
}

const char *summary_rule(const char *token)
{
	return plain(rules, ARRAY_LEN(rules), token);
}

static void say_path(const char *before, const char *path, const char *after)
{
	struct buf b = BUF_INIT((size_t)1 << 20);

	(void)str_printable(&b, path, strlen(path));
	if (after && *after)
		cli_say("  %s%s: %s", before, buf_text(&b), after);
	else
		cli_say("  %s%s", before, buf_text(&b));
	buf_done(&b);
}

/* A conflict in which the host's version is the one that lost. */
static bool is_taken(const struct unpack_change *c)
{
	return c->action == UA_CONFLICT && c->detail && str_starts(c->detail, "conflicts/host/");
}

static uint64_t count_taken(const struct unpack_report *u)
{
	uint64_t n = 0;

	for (size_t i = 0; i < u->changes_len; i++)
		n += is_taken(&u->changes[i]);
	return n;
}

static void list_of(const struct unpack_report *u, enum unpack_action a, bool taken, uint64_t count,
		    const char *title)
{
	size_t shown = 0;

	if (!count)
		return;
	cli_say("%s: %llu", title, (unsigned long long)count);
	for (size_t i = 0; i < u->changes_len && shown < SUMMARY_NAMES; i++) {
		const struct unpack_change *c = &u->changes[i];
		_cleanup_buf_ struct buf after = BUF_INIT(65536);

		if (c->action != a || is_taken(c) != taken)
			continue;
		if (c->rule[0])
			(void)buf_puts(&after, plain(rules, ARRAY_LEN(rules), c->rule));
		if (c->detail && *c->detail) {
			(void)buf_puts(&after, after.len ? " (" : "(");
			(void)str_printable(&after, c->detail, strlen(c->detail));
			(void)buf_putc(&after, ')');
		}
		if (c->host_exec)
			(void)buf_puts(&after, after.len
						   ? "; the host runs this file: look at it first"
						   : "the host runs this file: look at it first");
		say_path("", c->path, buf_text(&after));
		shown++;
	}
	if (count > shown)
		cli_say("  ... and %llu more (changes.jsonl in the run's directory has all)",
			(unsigned long long)(count - shown));
}

static void list(const struct unpack_report *u, enum unpack_action a, const char *title)
{
	list_of(u, a, false, u->counts[a], title);
}

static void history(const struct transfer *t, const char *run_dir)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16384);

	if (!t->history.asked)
		return;
	history_text(&t->history, &b);
	/* A mere `git status` touches the repository: nothing to say about it. */
	if (t->history.outcome != HISTORY_NONE || t->history.why[0])
		cli_say("history: %s", buf_text(&b));
	if (t->history.others == OTHERS_KEPT)
		cli_say(
		    "commits outside HEAD (other branches, tags, stash) are kept, unchecked: %s/" GITBACK_OTHERS
		    "; look: git bundle list-heads FILE; take: git -c fetch.fsckObjects=true fetch FILE REF",
		    run_dir);
	else if (t->history.others == OTHERS_FAILED)
		cli_say(
		    "commits outside HEAD (other branches, tags, stash) could not be packed%s%s",
		    t->history.others_why[0] ? ": " : "", t->history.others_why);
}

static void untrashed(const struct unpack_report *u)
{
	list(u, UA_NOT_TRASHED,
	     "NOT IN THE TRASH (all is published; the old versions lie below the workspace until "
	     "'airlock recover DIRECTORY' can move them)");
}

static void losses(const struct unpack_report *u)
{
	list(u, UA_REFUSE, "refused");
	list(u, UA_CONFLICT, "CONFLICTS (both sides changed; the losing version is saved)");
	list(u, UA_FAIL, "NOT WRITTEN (the host refused)");
	untrashed(u);
}

static bool report_waits(const struct unpack_report *u)
{
	return !u->rejected && (u->counts[UA_ADD] || u->counts[UA_CHANGE] || u->counts[UA_MODE] ||
				u->counts[UA_DELETE] || u->counts[UA_MERGE] ||
				u->counts[UA_CONFLICT] || u->counts[UA_FAIL]);
}

static bool waits(const struct transfer *t)
{
	if (!t->review)
		return false;
	for (size_t i = 0; i < t->maps_len; i++)
		if (report_waits(&t->maps[i].rep))
			return true;
	return t->out_done && !t->out.rejected &&
	       (report_waits(&t->out) || t->history.outcome == HISTORY_HELD);
}

static void mass_delete(const struct transfer *t, const char *run_dir)
{
	if (!t->out.mass_delete)
		return;
	if (t->review)
		cli_say("MASS DELETION: an apply of all of it would delete most of the files");
	else
		cli_say("MASS DELETION: the deleted files lie in %s/trash", run_dir);
}

static void review_next(const struct transfer *t, const char *run_dir)
{
	const char *run = path_base(run_dir);

	if (waits(t))
		cli_say("look: airlock diff %s; take: airlock apply %s; drop: airlock discard %s",
			run, run, run);
}

/* What was done, or would be, in one place. */
static void results(const struct transfer *t, const struct unpack_report *u)
{
	uint64_t taken = count_taken(u);

	list(u, UA_CHANGE, "changed");
	list(u, UA_MERGE, "changed on both sides and merged");
	list(u, UA_ADD, "added");
	list(u, UA_MODE, "mode changed");
	list(u, UA_DELETE, "deleted");
	list(u, UA_REFUSE, "refused");
	list_of(u, UA_CONFLICT, true, taken,
		"conflicts, the sandbox's version taken (yours is saved)");
	list_of(u, UA_CONFLICT, false, u->counts[UA_CONFLICT] - taken,
		t->review
		    ? "CONFLICTS (both sides changed; an apply keeps yours and lets these wait)"
		: t->applied ? "CONFLICTS (both sides changed; yours stay, these go on waiting)"
			     : "CONFLICTS (both sides changed; the losing version is saved)");
	list(u, UA_FAIL,
	     t->review ? "COULD NOT BE WRITTEN (the host refuses)"
		       : "NOT WRITTEN (the host refused)");
	untrashed(u);
}

static void map_title(const struct map_result *m, const char *words)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);

	(void)str_printable(&b, m->src, strlen(m->src));
	cli_say("mapping %s: %s", buf_text(&b), words);
}

/* The other places, each by its name on the host. */
static void maps(const struct transfer *t)
{
	for (size_t i = 0; i < t->maps_len; i++) {
		const struct map_result *m = &t->maps[i];

		if (m->done && m->rep.rejected) {
			map_title(m, "RESULTS REJECTED: nothing was written there");
		} else if (m->err.code != ERR_NONE) {
			map_title(m, "its results did NOT come back");
		} else if (m->done && (report_waits(&m->rep) || m->rep.counts[UA_REFUSE])) {
			map_title(m, t->review ? "nothing was written; an apply would now:"
					       : "what came back:");
			results(t, &m->rep);
			if (m->rep.mass_delete && !t->review)
				cli_say("MASS DELETION: the deleted files lie in %s/trash", m->dir);
		} else if (m->done && !t->applied) {
			map_title(m, "nothing changed");
		}
	}
}

void summary_results(const struct transfer *t, const char *run_dir)
{
	const struct unpack_report *u = &t->out;

	if (t->out_done && u->rejected) {
		cli_say(
		    "RESULTS REJECTED (rule %s): nothing was written to the workspace; the stream is kept in %s; if the run "
		    "said --strict, 'airlock recover --no-strict RUN' brings back the rest",
		    u->rule, run_dir);
		maps(t);
		history(t, run_dir);
		return;
	}
	if (!t->out_done) {
		maps(t);
		return;
	}
	if (t->review)
		cli_say(
		    "REVIEW: nothing was written to the workspace; what an apply would do now:");
	results(t, u);
	if (u->counts[UA_IGNORE])
		cli_say("stayed in the sandbox because ignored: %llu (bring them with --include)",
			(unsigned long long)u->counts[UA_IGNORE]);
	if (t->unreadable)
		cli_say("could not be read in the sandbox, left as they are here: %llu",
			(unsigned long long)t->unreadable);
	mass_delete(t, run_dir);
	if (!u->counts[UA_CHANGE] && !u->counts[UA_ADD] && !u->counts[UA_DELETE] &&
	    !u->counts[UA_MODE] && !u->counts[UA_MERGE] && !count_taken(u))
		cli_say(t->review ? "nothing" : "nothing in the workspace changed");
	maps(t);
	history(t, run_dir);
	review_next(t, run_dir);
}

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
		(void)buf_puts(&why, plain(reasons, ARRAY_LEN(reasons), n->reason));
		if (n->detail) {
			(void)buf_puts(&why, " (");
			(void)str_printable(&why, n->detail, strlen(n->detail));
			(void)buf_putc(&why, ')');
		}
		say_path("", buf_text(&path), buf_text(&why));
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
		return;
	}
	for (size_t i = 0; i < o->isolation_len; i++)
		on += strcmp(o->isolation[i].state, "in force") == 0;
	cli_say("isolation: %zu of %zu layers in force; network %s", on, o->isolation_len,
		q->net == NET_HOST ? "HOST (the command can reach everything this host can)"
		: q->net_allow	   ? "by allow-list"
				   : "none");
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

void summary_print(const struct request *q, const struct run_outcome *o)
{
	cli_say("---- summary: exit status %d ----", o->exit_status);
	summary_results(&o->xfer, o->run_dir ? o->run_dir : "");
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

void summary_losses(const struct request *q, const struct run_outcome *o)
{
	const struct transfer *t = &o->xfer;

	limits_hit(q, o);
	if (t->out_done && t->out.rejected)
		summary_results(t, o->run_dir ? o->run_dir : "");
	else if (t->out_done)
		losses(&t->out);
	for (size_t i = 0; i < t->maps_len; i++) {
		const struct unpack_report *u = &t->maps[i].rep;

		if (u->counts[UA_REFUSE] || u->counts[UA_CONFLICT] || u->counts[UA_FAIL] ||
		    u->counts[UA_NOT_TRASHED]) {
			map_title(&t->maps[i], "not all is as in the sandbox:");
			losses(u);
		}
	}
	network_refused(o);
	if (t->out_done && t->history.outcome == HISTORY_FAILED)
		history(t, o->run_dir ? o->run_dir : "");
	review_next(t, o->run_dir ? o->run_dir : "");
	mass_delete(t, o->run_dir ? o->run_dir : "");
	withheld(o);
	if (o->lease_state == LEASE_RECOVERABLE || o->pending)
		cli_say("the work is kept: 'airlock recover %s'", o->id);
}
