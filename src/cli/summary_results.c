#include "cli/summary_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/summary.h"

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
			(void)buf_puts(&after, summary_rule(c->rule));
		if (c->detail && *c->detail) {
			(void)buf_puts(&after, after.len ? " (" : "(");
			(void)str_printable(&after, c->detail, strlen(c->detail));
			(void)buf_putc(&after, ')');
		}
		if (c->host_exec)
			(void)buf_puts(&after, after.len
						   ? "; the host runs this file: look at it first"
						   : "the host runs this file: look at it first");
		summary_say_path("", c->path, buf_text(&after));
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

void summary_result_losses(const struct transfer *t, const char *run_dir)
{
	if (t->out_done && t->out.rejected)
		summary_results(t, run_dir);
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
	if (t->out_done && t->history.outcome == HISTORY_FAILED)
		history(t, run_dir);
	review_next(t, run_dir);
	mass_delete(t, run_dir);
}
