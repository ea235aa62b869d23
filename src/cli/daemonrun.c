#include "cli/daemonrun.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/runopts_internal.h"
#include "engine/interrupt.h"
#include "engine/preset.h"
#include "engine/runner.h"
#include "store/env.h"

#define NO_ID "00000000-0000-4000-8000-000000000000"
#define LINE_MAX_ ((size_t)1 << 20) /* of the log's stream: a piece has 16 KiB */
#define LOOK_MS 50		    /* between two looks whether a run is over */
#define AWAY_MS 60000		    /* a daemon that is started again is waited for that long */

/* One run that is watched. */
struct watch {
	const struct daemon *d;
	struct runopts *o;
	char id[ID_LEN + 1];
	struct daemon_stream s;
	struct buf line, data;	/* of the stream: the line that comes, the event so far */
	char event[16], at[24]; /* kind of the event; id of the last whole one */
	bool open, ended, cancelled, mute[2];
	int64_t lost_ns; /* since when the daemon has been away; 0: it is not */
};

/* --- what is asked for -------------------------------------------------------------------- */

/* Of the command line: what a run of the daemon has no place for. NULL: nothing. */
static const char *beyond(const struct runopts *o)
{
	static const char *const known[] = {"env",   "workspace", "timeout", "review",
					    "quiet", "json",	  "help",    "no-preset"};

	for (size_t i = 0; i < strv_len(o->given); i++) {
		bool is = false;

		for (size_t k = 0; k < ARRAY_LEN(known); k++)
			is |= strcmp(o->given[i], known[k]) == 0;
		if (!is)
			return o->given[i];
	}
	return NULL;
}

/* A preset gives a command files, a network list and keys of this host; a run of the daemon has none of that. */
static int no_preset(const struct runopts *o, struct err *e)
{
	_cleanup_preset_ struct preset p = {0};

	if (o->no_preset || strpbrk(o->req.argv[0], " /") ||
	    preset_load(o->req.argv[0], &p, NULL) < 0)
		return 0;
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "%.80s has a preset, and a run of the daemon has none yet: give --no-preset, or run "
	    "without the daemon: AIRLOCK_DAEMON=none",
	    o->req.argv[0]);
}

/* The words as a line for sh -c: the same program with the same arguments, in the same directory. */
static void command_line(struct buf *b, const struct request *q)
{
	if (q->subdir[0]) {
		/* Not a word of its own: "-" and what CDPATH finds are other places. */
		(void)buf_puts(b, "cd ./");
		(void)buf_put_sh(b, q->subdir);
		(void)buf_puts(b, " || exit 125; ");
	}
	(void)buf_puts(b, "exec");
	for (size_t i = 0; q->argv[i]; i++) {
		(void)buf_putc(b, ' ');
		(void)buf_put_sh(b, q->argv[i]);
	}
}

static const char *member(const json_t *j, const char *name)
{
	const char *v = json_string_value(json_object_get(j, name));

	return v ? v : "";
}

/* GET of an array; what is refused is an error. Owned. */
static int get(const struct daemon *d, const char *path, const char *what, json_t **ret,
	       struct err *e)
{
	int status = 0, r = daemon_ask(d, "GET", path, NULL, &status, ret, e);

	if (r == 0 && status != 200)
		r = daemon_refused(status, TAKE_PTR(*ret), what, e);
	if (r == 0 && !*ret)
		r = err_set(e, ERR_PROTOCOL, "the daemon's answer about %s is no JSON", what);
	return r;
}

/* The environment of that name: 1, 0 the daemon has none. */
static int find_env(const struct daemon *d, const char *name, char id[UUID_LEN + 1], struct err *e)
{
	json_t *all = NULL, *v;
	size_t i;
	int r = get(d, "/api/companies/" NO_ID "/environments?limit=10000", "its environments",
		    &all, e);

	id[0] = '\0';
	if (r == 0)
		json_array_foreach(all, i, v) if (strcmp(member(v, "name"), name) == 0)(void)
		    snprintf(id, UUID_LEN + 1, "%s", member(v, "id"));
	json_decref(all);
	return r < 0 ? r : id[0] != '\0';
}

/* The company of AIRLOCK_COMPANY, by id or name; "": the daemon knows the only one. */
static int find_company(const struct daemon *d, char id[UUID_LEN + 1], struct err *e)
{
	const char *word = getenv("AIRLOCK_COMPANY");
	json_t *all = NULL, *v;
	size_t i;
	int r;

	id[0] = '\0';
	if (!word || !word[0])
		return 0;
	r = get(d, "/api/companies", "its companies", &all, e);
	if (r == 0)
		json_array_foreach(all, i, v) if (strcmp(member(v, "name"), word) == 0 ||
						  strcmp(member(v, "id"), word) == 0)(void)
		    snprintf(id, UUID_LEN + 1, "%s", member(v, "id"));
	json_decref(all);
	if (r == 0 && !id[0])
		r = err_set(e, ERR_NOT_FOUND, "AIRLOCK_COMPANY: the daemon has no company %.80s",
			    word);
	return r;
}

/* The deepest root above the workspace: its name, and the path below it. */
static int find_root(const struct daemon *d, const struct request *q, const char *company,
		     json_t *body, struct err *e)
{
	const char *name = NULL, *path = "";
	json_t *all = NULL, *v;
	size_t i, best = 0;
	int r = get(d, "/api/workspace-roots", "its workspace roots", &all, e);

	if (r == 0)
		json_array_foreach(all, i, v)
		{
			_cleanup_free_ char *real = realpath(member(v, "path"), NULL);
			const char *whose = member(v, "companyId");

			if (!real || !path_is_within(q->workspace, real) || strlen(real) <= best ||
			    (whose[0] && company[0] && strcmp(whose, company) != 0))
				continue;
			best = strlen(real);
			name = member(v, "name");
			path = q->workspace + best + (q->workspace[best] == '/');
			if (whose[0] && !company[0])
				(void)json_object_set_new(body, "companyId", json_string(whose));
		}
	if (r == 0 && !name)
		r = err_set(
		    e, ERR_NOT_FOUND,
		    "workspace %s lies below no --workspace-root of the daemon at %s: start the daemon with "
		    "--workspace-root NAME=DIRECTORY, or run without it: AIRLOCK_DAEMON=none",
		    q->workspace, d->at.text);
	if (r == 0) {
		(void)json_object_set_new(body, "workspaceRoot", json_string(name));
		(void)json_object_set_new(body, "workspacePath", json_string(path));
	}
	json_decref(all);
	return r;
}

static int start(struct watch *w, const char *env, struct err *e)
{
	const struct request *q = &w->o->req;
	_cleanup_buf_ struct buf line = BUF_INIT(LINE_MAX_);
	char company[UUID_LEN + 1], path[96];
	json_t *body = json_object(), *answer = NULL;
	int status = 0, r = find_company(w->d, company, e);

	command_line(&line, q);
	(void)json_object_set_new(body, "command", json_string(buf_text(&line)));
	(void)json_object_set_new(body, "review", json_boolean(q->review));
	if (q->timeout.v)
		(void)json_object_set_new(
		    body, "timeoutSeconds",
		    json_integer((json_int_t)((q->timeout.v + NS_PER_S - 1) / NS_PER_S)));
	if (company[0])
		(void)json_object_set_new(body, "companyId", json_string(company));
	if (r == 0)
		r = find_root(w->d, q, company, body, e);
	(void)snprintf(path, sizeof(path), "/api/environments/%s/runs", env);
	if (r == 0)
		r = daemon_ask(w->d, "POST", path, body, &status, &answer, e);
	json_decref(body);
	if (r == 0 && status != 202)
		r = daemon_refused(status, TAKE_PTR(answer), "this run", e);
	if (r == 0)
		(void)snprintf(w->id, sizeof(w->id), "%s", member(answer, "id"));
	json_decref(answer);
	return r;
}

/* --- its log ------------------------------------------------------------------------------ */

/* A stream that cannot be written any more gets nothing further; the run's log has all. */
static void put_out(struct watch *w, int fd, const void *p, size_t n)
{
	bool *mute = &w->mute[fd == STDERR_FILENO];

	for (const char *at = p; n && !*mute;) {
		ssize_t k = write(fd, at, n);

		if (k < 0 && errno != EINTR && errno != EAGAIN)
			*mute = true;
		at += k > 0 ? k : 0;
		n -= (size_t)(k > 0 ? k : 0);
	}
}

static void put_bytes(struct watch *w, int fd, const json_t *j)
{
	const json_t *text = json_object_get(j, "text");
	const char *b64 = member(j, "base64");
	size_t n = strlen(b64), got = 0;
	_cleanup_free_ unsigned char *bin = NULL;

	if (text) {
		put_out(w, fd, json_string_value(text), json_string_length(text));
		return;
	}
	bin = malloc(n + 1);
	if (bin && sodium_base642bin(bin, n, b64, n, NULL, &got, NULL,
				     sodium_base64_VARIANT_ORIGINAL) == 0)
		put_out(w, fd, bin, got);
}

static void on_event(struct watch *w)
{
	json_t *j = w->data.len ? json_loadb(w->data.data, w->data.len, 0, NULL) : NULL;

	if (strcmp(w->event, "stdout") == 0)
		put_bytes(w, STDOUT_FILENO, j);
	else if (strcmp(w->event, "stderr") == 0)
		put_bytes(w, STDERR_FILENO, j);
	else if (strcmp(w->event, "end") == 0)
		w->ended = true;
	/* Notes are for the log: what of them a person must know is in the record. */
	json_decref(j);
	buf_reset(&w->data);
	w->event[0] = '\0';
}

static void on_line(struct watch *w, const char *p)
{
	if (!*p)
		on_event(w);
	else if (str_starts(p, "event: "))
		(void)snprintf(w->event, sizeof(w->event), "%s", p + 7);
	else if (str_starts(p, "id: "))
		(void)snprintf(w->at, sizeof(w->at), "%s", p + 4);
	else if (str_starts(p, "data: "))
		(void)buf_puts(&w->data, p + 6);
}

static int take(struct watch *w, struct view v)
{
	while (v.n) {
		const char *nl = memchr(v.p, '\n', v.n);
		size_t n = nl ? (size_t)(nl - v.p) : v.n;

		if (buf_put(&w->line, v.p, n) < 0)
			return -EPROTO;
		if (!nl)
			return 0;
		on_line(w, buf_text(&w->line));
		buf_reset(&w->line);
		v.p += n + 1;
		v.n -= n + 1;
	}
	return 0;
}

static int reopen(struct watch *w, struct err *e)
{
	char path[96];
	int r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s/log%s%s", w->id, w->at[0] ? "?after=" : "",
		       w->at);
	buf_reset(&w->line);
	buf_reset(&w->data);
	w->event[0] = '\0';
	r = daemon_stream_open(w->d, path, &w->s, e);
	w->open = r == 0;
	return r;
}

/* --- to its end --------------------------------------------------------------------------- */

/* What a signal asks for. 1: nobody watches any more. */
static int judge(struct watch *w, struct err *e)
{
	char path[64];
	json_t *answer = NULL;
	int status = 0;

	interrupt_ack();
	if (*interrupt_second())
		return 1;
	if (!*interrupt_first() || w->cancelled)
		return 0;
	w->cancelled = true;
	(void)snprintf(path, sizeof(path), "/api/runs/%s/cancel", w->id);
	if (daemon_ask(w->d, "POST", path, NULL, &status, &answer, e) < 0)
		return -1;
	json_decref(answer);
	if (status == 200 && !w->o->quiet)
		cli_say(
		    "cancelled; what it did is brought back. Ctrl-C again: stop watching, the run goes on");
	return 0;
}

static void pause_ms(int ms)
{
	struct pollfd p = {.fd = interrupt_fd(), .events = POLLIN};

	(void)poll(&p, 1, ms);
}

/* The daemon does not answer: it may be on its way back, and the run goes on without it. */
static int away(struct watch *w, struct err *e)
{
	int64_t now = clock_mono_ns();

	if (!w->lost_ns)
		w->lost_ns = now;
	if (now - w->lost_ns < AWAY_MS * NS_PER_MS) {
		pause_ms(LOOK_MS * 4);
		return 0;
	}
	return err_set(e, ERR_UNAVAILABLE,
		       "the daemon at %s went away; run %s goes on: 'airlock logs %s' on its side",
		       w->d->at.text, w->id, w->id);
}

/* The run as the daemon has it (owned), once it is over. */
static int look(struct watch *w, json_t **ret, struct err *e)
{
	char path[64];
	int status = 0, r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s", w->id);
	r = daemon_ask(w->d, "GET", path, NULL, &status, ret, e);
	if (r < 0)
		return away(w, e);
	w->lost_ns = 0;
	if (status != 200)
		return daemon_refused(status, TAKE_PTR(*ret), "to tell of the run", e);
	if (json_is_string(json_object_get(*ret, "endedAt")))
		return 1;
	json_decref(TAKE_PTR(*ret));
	return 0;
}

/* What the stream has now. 1: that was all of it, 0: there may be more. */
static int drain(struct watch *w, struct err *e)
{
	struct view v;
	int r;

	while ((r = daemon_stream_next(&w->s, &v, e)) > 0)
		if (take(w, v) < 0)
			return err_set(e, ERR_PROTOCOL,
				       "the daemon's log of the run is no event stream");
	if (r == -ENODATA || r == -EPIPE) {
		daemon_stream_done(&w->s);
		w->open = false;
		return r == -ENODATA;
	}
	return r;
}

/* 1 and the run (owned) at its end; 2: nobody watches any more. */
static int follow(struct watch *w, json_t **ret, struct err *e)
{
	int r = 0;

	*ret = NULL;
	while (r == 0) {
		struct pollfd p[2] = {{.fd = interrupt_fd(), .events = POLLIN}, {.fd = -1}};
		bool all = w->ended;

		if (!w->open && !w->ended && reopen(w, e) < 0)
			r = away(w, e);
		p[1] = (struct pollfd){.fd = w->open ? w->s.fd : -1, .events = POLLIN};
		if (r == 0)
			(void)poll(p, 2, w->ended ? LOOK_MS : w->open ? -1 : 0);
		if (r == 0 && w->open && p[1].revents) {
			r = drain(w, e);
			/* The log of a run that never began has no end, its stream has. */
			all |= r > 0;
			r = r > 0 ? 0 : r;
		}
		if (r == 0 && (r = judge(w, e)) > 0)
			return 2;
		if (r == 0 && all)
			r = look(w, ret, e);
	}
	return r;
}

/* --- what became of it -------------------------------------------------------------------- */

static void say_counts(const json_t *record)
{
	static const struct {
		const char *key, *word;
	} words[] = {{"add", "added"},	    {"change", "changed"},  {"mode", "mode changed"},
		     {"delete", "deleted"}, {"merge", "merged"},    {"conflict", "CONFLICTS"},
		     {"refuse", "refused"}, {"fail", "NOT WRITTEN"}};
	const json_t *out = json_object_get(record, "sync_out"),
		     *counts = json_object_get(out, "counts");
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		json_int_t n = json_integer_value(json_object_get(counts, words[i].key));

		if (n)
			(void)buf_putf(&b, "%s%lld %s", b.len ? ", " : "", (long long)n,
				       words[i].word);
	}
	cli_say("results: %s", b.len ? buf_text(&b) : "nothing changed");
}

static void say_end(const struct watch *w, const json_t *run, const json_t *record)
{
	const char *status = member(run, "status"), *reason = member(run, "reason");

	if (strcmp(status, "succeeded") != 0 && strcmp(status, "failed") != 0)
		cli_say("run %s is %s%s%s", w->id, status, reason[0] ? ": " : "", reason);
	else if (reason[0])
		cli_say("run %s failed: %s", w->id, reason);
	if (record && member(record, "error")[0])
		cli_say("%s", member(record, "error"));
	if (w->o->quiet)
		return;
	if (record)
		say_counts(record);
	if (json_is_true(json_object_get(run, "workKept")))
		cli_say("its work is kept: airlock recover %s", w->id);
	else if (json_is_true(json_object_get(run, "review")))
		cli_say("results wait: airlock diff %s, airlock apply %s", w->id, w->id);
}

static int exit_of(const struct watch *w, const json_t *run)
{
	const json_t *j = json_object_get(run, "exitStatus");

	/* The signal was ours; the daemon ended the command with one of its own. */
	if (w->cancelled && strcmp(member(run, "status"), "cancelled") == 0)
		return 128 + interrupt_signo();
	return json_is_integer(j) ? (int)json_integer_value(j) : EXIT_AIRLOCK;
}

static int finish(struct watch *w, const json_t *run, int *ret_status, char **ret_record,
		  struct err *e)
{
	char path[64];
	json_t *record = NULL;
	int status = 0, r;

	(void)snprintf(path, sizeof(path), "/api/runs/%s/report", w->id);
	r = daemon_ask(w->d, "GET", path, NULL, &status, &record, e);
	if (r == 0 && status != 200) {
		/* One that never began has no record. */
		json_decref(record);
		record = NULL;
	}
	if (r == 0) {
		say_end(w, run, record);
		*ret_status = exit_of(w, run);
		*ret_record = record ? json_dumps(record, JSON_COMPACT) : NULL;
	}
	json_decref(record);
	return r;
}

static int watch_run(struct watch *w, const char *env, int *ret_status, char **ret_record,
		     struct err *e)
{
	json_t *run = NULL;
	int r = start(w, env, e);

	if (r < 0)
		return r;
	if (!w->o->quiet)
		cli_say("run %s in environment %s of the daemon at %s; it gets no standard input",
			w->id, w->o->env_name, w->d->at.text);
	r = follow(w, &run, e);
	if (r == 2) {
		cli_say(
		    "run %s goes on without us: 'airlock logs %s' on the daemon's side shows it",
		    w->id, w->id);
		*ret_status = 128 + interrupt_signo();
		r = 1;
	} else if (r == 1) {
		r = finish(w, run, ret_status, ret_record, e);
		r = r < 0 ? r : 1;
	}
	json_decref(run);
	if (w->open)
		daemon_stream_done(&w->s);
	return r;
}

/* What only the command line knows is run here; that name with the daemon, too, is the daemon's. */
static bool known_here(struct state *st, const char *name)
{
	struct env_row row = {0};
	int r = env_get(st->store, name, &row, NULL);

	env_row_done(&row);
	return r == 0;
}

int daemonrun(struct state *st, struct runopts *o, int *ret_status, char **ret_record,
	      struct err *e)
{
	_cleanup_daemon_ struct daemon d = {0};
	_cleanup_free_ struct watch *w = calloc(1, sizeof(*w));
	char env[UUID_LEN + 1];
	int r;

	/* Providers, not environments. */
	if (strcmp(o->env_name, "native") == 0 || strcmp(o->env_name, "local") == 0)
		return 0;
	r = w ? daemon_find(st->dir, &d, e) : err_set(e, ERR_NOMEM, "daemon: out of memory");
	if (r == 0 && !o->quiet && !getenv("AIRLOCK_DAEMON"))
		cli_say("no daemon runs here: environment %s is this command's own", o->env_name);
	if (r <= 0)
		return r;
	r = find_env(&d, o->env_name, env, e);
	if (r == 0 && known_here(st, o->env_name)) {
		if (!o->quiet)
			cli_say("the daemon at %s has no environment %s: run here, without it",
				d.at.text, o->env_name);
		return 0;
	}
	if (r == 0)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "neither the daemon at %s nor 'airlock env list' has an environment %s",
		    d.at.text, o->env_name);
	if (r > 0 && beyond(o))
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "environment %s is the daemon's, and a run there has no --%s: leave it out, or run "
		    "without the daemon: AIRLOCK_DAEMON=none",
		    o->env_name, beyond(o));
	if (r > 0 && (no_preset(o, e) < 0 || runopts_workspace(o, e) < 0))
		r = -1;
	if (r < 0)
		return r;
	*w = (struct watch){.d = &d,
			    .o = o,
			    .s = {.fd = -1},
			    .line = BUF_INIT(LINE_MAX_),
			    .data = BUF_INIT(LINE_MAX_)};
	r = watch_run(w, env, ret_status, ret_record, e);
	buf_done(&w->line);
	buf_done(&w->data);
	return r;
}
