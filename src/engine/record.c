#include "engine/record.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "engine/netproxy.h"
#include "engine/runner.h"

#define TEXT_MAX ((size_t)1 << 20)

static const char *const ends[] = {
    [END_EXITED] = "exited",	 [END_SIGNALED] = "signaled", [END_FAILED] = "not_started",
    [END_TIMEOUT] = "timeout",	 [END_STOPPED] = "stopped",   [END_ABANDONED] = "abandoned",
    [END_LOST] = "sandbox_lost",
};

const char *record_end_name(enum command_end end)
{
	return ends[end];
}

/* Foreign bytes in printable form: JSON strings are UTF-8. */
static json_t *text(const char *s)
{
	struct buf b = BUF_INIT(TEXT_MAX);
	json_t *j;

	if (!s)
		return json_null();
	(void)str_printable(&b, s, strlen(s));
	j = json_string(buf_text(&b));
	buf_done(&b);
	return j;
}

/* Of an errno; 0: null. */
static json_t *reason(int error)
{
	return error ? text(strerror(error)) : json_null();
}

/* "" is what a run that never began has. */
static json_t *word(const char *s)
{
	return text(*s ? s : NULL);
}

static json_t *when(int64_t real_ns)
{
	char t[32];

	clock_rfc3339(real_ns, t, sizeof(t));
	return json_string(t);
}

static json_t *vector(char *const *v)
{
	json_t *a = json_array();

	for (size_t i = 0; v && v[i]; i++)
		(void)json_array_append_new(a, text(v[i]));
	return a;
}

static json_t *setting(const struct setting *s)
{
	return json_pack("{s:I,s:s}", "value", (json_int_t)s->v, "source", s->source);
}

static json_t *limits(const struct request *q)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", "timeout_ns", setting(&q->timeout),
			 "memory_bytes", setting(&q->memory), "pids", setting(&q->pids),
			 "cpu_milli", setting(&q->cpu), "log_bytes", setting(&q->log_limit));
}

static json_t *command(const struct run_outcome *o)
{
	const struct command_result *c = &o->cmd;

	if (!o->command_ran)
		return json_null();
	return json_pack("{s:s,s:i,s:i,s:b,s:i,s:i,s:I,s:I,s:o,s:I,s:o,s:I,s:I}", "end",
			 ends[c->end], "exit_code", c->code, "signal", c->signo, "killed",
			 c->killed, "leftover_processes", (int)c->leftovers, "oom_kills",
			 (int)c->oom_kills, "duration_ns", (json_int_t)c->duration_ns,
			 "stdout_bytes", (json_int_t)c->out_bytes, "stdout_error",
			 reason(c->out_error), "stderr_bytes", (json_int_t)c->err_bytes,
			 "stderr_error", reason(c->err_error), "cpu_ns", (json_int_t)c->cpu_ns,
			 "max_rss_kib", (json_int_t)c->maxrss_kib);
}

static json_t *phases(const struct run_outcome *o)
{
	json_t *a = json_array();

	for (size_t i = 0; i < o->phases_len; i++)
		(void)json_array_append_new(a, json_pack("{s:s,s:I,s:s}", "name", o->phases[i].name,
							 "duration_ns",
							 (json_int_t)o->phases[i].duration_ns,
							 "outcome", o->phases[i].outcome));
	return a;
}

static json_t *isolation(const struct request *q, const struct run_outcome *o)
{
	json_t *a;

	if (!q->provider)
		return json_null();
	a = json_array();
	for (size_t i = 0; i < o->isolation_len; i++)
		(void)json_array_append_new(
		    a, json_pack("{s:s,s:s,s:s}", "layer", o->isolation[i].layer, "state",
				 o->isolation[i].state, "detail", o->isolation[i].detail));
	return json_pack("{s:b,s:s,s:s,s:s,s:o}", "isolated", q->provider->isolates, "statement",
			 q->provider->statement, "network",
			 q->net == NET_HOST ? "host"
			 : q->net_allow	    ? "allow"
					    : "none",
			 "network_source", q->net_source, "layers", a);
}

static json_t *sync_in_json(const struct transfer *t)
{
	const struct sync_in_result *s = &t->in;
	json_t *notes = json_array();

	if (!t->in_done) {
		json_decref(notes);
		return json_null();
	}
	for (size_t i = 0; i < s->notes_len; i++) {
		const struct sync_note *n = &s->notes[i];
		json_t *j = json_pack("{s:o,s:s}", "path", text(n->path), "reason", n->reason);

		if (n->detail)
			(void)json_object_set_new(j, "detail", text(n->detail));
		(void)json_array_append_new(notes, j);
	}
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:s,s:o,s:o}", "files",
			 (json_int_t)s->files, "directories", (json_int_t)s->dirs, "links",
			 (json_int_t)s->links, "bytes", (json_int_t)s->bytes, "copied_files",
			 (json_int_t)s->copied_files, "copied_bytes", (json_int_t)s->copied_bytes,
			 "excluded", (json_int_t)s->excluded, "reused", s->reused, "git", s->is_git,
			 "head", s->head, "branch", text(s->branch), "held_back", notes);
}

json_t *record_counts(const struct unpack_report *u)
{
	json_t *counts = json_object();

	for (int i = 0; i < UA_ACTION_COUNT; i++)
		(void)json_object_set_new(counts, unpack_action_name((enum unpack_action)i),
					  json_integer((json_int_t)u->counts[i]));
	return counts;
}

static json_t *changes_json(const struct unpack_report *u)
{
	json_t *changes = json_array();

	for (size_t i = 0; i < u->changes_len; i++)
		(void)json_array_append_new(
		    changes, json_pack("{s:s,s:o,s:s,s:o,s:b}", "action",
				       unpack_action_name(u->changes[i].action), "path",
				       text(u->changes[i].path), "rule", u->changes[i].rule,
				       "detail", text(u->changes[i].detail), "host_executable",
				       u->changes[i].host_exec));
	return changes;
}

static json_t *sync_out_json(const struct transfer *t)
{
	const struct unpack_report *u = &t->out;

	if (!t->out_done)
		return json_null();
	return json_pack("{s:o,s:o,s:I,s:I,s:I,s:I,s:b,s:b,s:s,s:b}", "counts", record_counts(u),
			 "changes", changes_json(u), "bytes_written", (json_int_t)u->bytes_written,
			 "members", (json_int_t)t->members, "unreadable", (json_int_t)t->unreadable,
			 "withheld", (json_int_t)t->withheld, "mass_delete", u->mass_delete,
			 "rejected", u->rejected, "rule", u->rule, "review", t->review);
}

json_t *record_maps(const struct transfer *t)
{
	json_t *a = json_array();

	for (size_t i = 0; i < t->maps_len; i++) {
		const struct map_result *m = &t->maps[i];
		(void)json_array_append_new(
		    a, json_pack("{s:o,s:o,s:s,s:o,s:o,s:o,s:I,s:b,s:s,s:o}", "source",
				 text(m->src), "target", text(m->dst), "kind",
				 m->file ? "file" : "dir", "directory", text(m->dir), "counts",
				 m->done ? record_counts(&m->rep) : json_null(), "changes",
				 m->done ? changes_json(&m->rep) : json_null(), "bytes_written",
				 (json_int_t)m->rep.bytes_written, "rejected", m->rep.rejected,
				 "rule", m->rep.rule, "error",
				 m->err.code == ERR_NONE ? json_null() : text(m->err.text)));
	}
	return a;
}

json_t *record_history(const struct history *h)
{
	if (!h->asked)
		return json_null();
	return json_pack("{s:s,s:I,s:o,s:s,s:s,s:o,s:s,s:o,s:o,s:o,s:o}", "outcome",
			 history_outcome_name(h->outcome), "commits", (json_int_t)h->commits,
			 "branch", text(h->branch), "head", h->head, "ref", h->ref, "why",
			 text(h->why), "others",
			 h->others == OTHERS_KEPT     ? "kept"
			 : h->others == OTHERS_FAILED ? "failed"
						      : "none",
			 "others_why", text(h->others_why), "flagged", text(h->flagged), "missing",
			 text(h->missing), "differs", text(h->differs));
}

static json_t *bridge(const struct bridge_outcome *o)
{
	const struct bridge_counts *c = &o->counts;

	if (!o->used)
		return json_null();
	return json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "policy",
			 text(o->policy), "restarts", (json_int_t)o->restarts, "requests",
			 (json_int_t)c->requests, "forwarded", (json_int_t)c->forwarded, "refused",
			 (json_int_t)c->refused, "failed", (json_int_t)c->failed, "indeterminate",
			 (json_int_t)c->indeterminate, "bytes_in", (json_int_t)c->bytes_in,
			 "bytes_out", (json_int_t)c->bytes_out, "unanswered",
			 (json_int_t)c->unanswered, "audit_lost", (json_int_t)c->audit_lost, "lost",
			 o->lost ? text(o->why) : json_null());
}

static json_t *upstreams(const struct run_outcome *o)
{
	json_t *a = json_array();

	for (size_t i = 0; i < ARRAY_LEN(o->named); i++) {
		json_t *j = o->named[i].used ? bridge(&o->named[i]) : NULL;

		if (!j)
			continue;
		(void)json_object_set_new(j, "name", text(o->named[i].name));
		(void)json_array_append_new(a, j);
	}
	return a;
}

static json_t *git_there(const struct inplace_report *g)
{
	if (!g->repo)
		return json_null();
	return json_pack("{s:b,s:o,s:o}", "compared", g->compared, "changed", text(g->changed),
			 "refs", text(g->refs));
}

static json_t *network(const struct request *q, const struct run_outcome *o)
{
	const struct proxy_counts *c = &o->net.counts;
	json_t *refused;

	if (!o->net.used)
		return json_null();
	refused = json_array();
	for (char *const *v = o->net.refused; v && v[0] && v[1]; v += 2) {
		_cleanup_free_ char *flag = netproxy_flag(v[0], v[1]);

		(void)json_array_append_new(refused,
					    json_pack("{s:o,s:o,s:o}", "place", text(v[0]), "rule",
						      text(v[1]), "allowed_by", text(flag)));
	}
	return json_pack("{s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "allow",
			 vector(q->net_allow), "resolve", vector(q->net_pins), "connections",
			 (json_int_t)c->connections, "allowed", (json_int_t)c->allowed, "refused",
			 (json_int_t)c->refused, "failed", (json_int_t)c->failed, "bytes_up",
			 (json_int_t)c->bytes_up, "bytes_down", (json_int_t)c->bytes_down,
			 "audit_lost", (json_int_t)c->audit_lost, "refused_places", refused, "lost",
			 o->net.lost ? text(o->net.why) : json_null());
}

char *record_text(const struct request *q, const struct run_outcome *o)
{
	json_t *error = json_null(), *j;
	char *line, *ret = NULL;

	if (o->err.code != ERR_NONE)
		error = json_pack("{s:s,s:s,s:o}", "code", err_name(o->err.code), "phase",
				  o->error_phase, "text", text(o->err.text));
	j = json_pack(
	    "{s:i,s:o,s:o,s:s,s:s,s:i,s:o,s:o,s:I,s:o,s:o,s:o,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
	    "version", 1, "run", word(o->id), "lease", word(o->lease_id), "state",
	    run_state_name(o->state), "lease_state", lease_state_name(o->lease_state),
	    "exit_status", o->exit_status, "started", when(o->started_ns), "ended",
	    when(o->ended_ns), "duration_ns", (json_int_t)(o->ended_ns - o->started_ns),
	    "environment", word(q->env_name), "provider",
	    text(q->provider ? q->provider->name : NULL), "workspace", word(q->workspace),
	    "workspace_reason", word(q->workspace_why), "directory", text(q->subdir), "shell",
	    q->bash ? "bash" : "sh", "argv", vector(q->argv), "limits", limits(q), "isolation",
	    isolation(q, o), "command", command(o), "sync_in", sync_in_json(&o->xfer), "sync_out",
	    sync_out_json(&o->xfer), "phases", phases(o));
	if (j) {
		(void)json_object_set_new(j, "image",
					  text(q->image_digest[0] ? q->image_digest : NULL));
		(void)json_object_set_new(j, "maps", record_maps(&o->xfer));
		(void)json_object_set_new(j, "bridge", bridge(&o->bridge));
		(void)json_object_set_new(j, "upstreams", upstreams(o));
		(void)json_object_set_new(j, "network", network(q, o));
		(void)json_object_set_new(j, "history", record_history(&o->xfer.history));
		(void)json_object_set_new(j, "error", error);
		(void)json_object_set_new(j, "stopped_by_signal", json_integer(o->stop_signo));
		(void)json_object_set_new(j, "log",
					  json_pack("{s:o,s:I,s:o}", "path", text(o->log_path),
						    "dropped_bytes", (json_int_t)o->log_dropped,
						    "error", reason(o->log_error)));
		(void)json_object_set_new(j, "in_place",
					  json_boolean(q->provider && q->provider->in_place));
		(void)json_object_set_new(j, "git_there", git_there(&o->git_there));
		(void)json_object_set_new(j, "reconnects", json_integer(o->reconnects));
		(void)json_object_set_new(j, "lease_pending", json_boolean(o->pending));
	}
	line = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (line && asprintf(&ret, "%s\n", line) < 0)
		ret = NULL;
	free(line);
	return ret;
}

void record_save(const char *run_dir, const char *rec)
{
	_cleanup_free_ char *p = path_join(run_dir, "record.json");
	_cleanup_fd_ int fd =
	    p ? open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

	if (fd >= 0 && write(fd, rec, strlen(rec)) < 0)
		(void)unlink(p);
}
