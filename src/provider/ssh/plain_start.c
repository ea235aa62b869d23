/*
 * How a sandbox without a guest begins, and how what it left there goes.
 *
 * Policy: as plain.c. The directory of a run is made, looked at and removed by scripts whose words come over standard input; a run
 * without `index` was not sent whole, and is never brought back. Removal takes that first.
 */
#include "provider/ssh/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/proc.h"
#include "provider/ssh/look.h"
#include "provider/ssh/plain_internal.h"
#include "provider/ssh/reach.h"
#include "provider/ssh/send.h"
#include "provider/ssh/session.h"
#include "provider/ssh/tool.h"
#include "wire/remote.h"

#define LOOK_MS 100
#define UP_MS (REMOTE_CONNECT_S * 1000 + REMOTE_SHELL_MS)
#define ASK_MS 90000 /* a look: connecting, the login, and ending what ran */

static const char *const whys[] = {
    [PLAIN_ASKED] = "as --ssh-guest never asks for",
    [PLAIN_MACHINE] = "there is no guest program for that kind of machine",
    [PLAIN_NOEXEC] = "that machine does not run the guest program (noexec, or a policy)",
    [PLAIN_ROOM] = "that machine cannot take the guest program (disk or quota full, or read-only)",
    [PLAIN_PLACE] = "that machine has no place for the guest program",
    [PLAIN_TOOL] =
	"that machine lacks a program with which the guest program gets there (uname, mkdir, head, wc, chmod, mv or rm)",
    [PLAIN_AGAIN] = "as at the begin of this sandbox",
};

static int start_watch(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_buf_ struct buf head = BUF_INIT(PLAIN_LINE_ROOM);
	_cleanup_strv_ char **argv = NULL, **env = NULL;
	_cleanup_fd_ int in = -1, out = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct process_opts o = PROCESS_OPTS_INIT;
	int64_t until = clock_mono_ns() + UP_MS * NS_PER_MS;
	struct plain_ends x;
	int a[2], b[2], r;

	if (null < 0 || pipe2(a, O_CLOEXEC) < 0)
		return err_sys(e, errno, "ssh: create a pipe");
	in = a[0];
	p->ask = a[1];
	if (pipe2(b, O_CLOEXEC) < 0)
		return err_sys(e, errno, "ssh: create a pipe");
	p->hear = b[0];
	out = b[1];
	(void)fcntl(p->ask, F_SETFL, O_NONBLOCK);
	r = plain_put_watch(&head, &p->place);
	r = r < 0 ? err_set(e, ERR_NOMEM, "ssh: out of memory") : plain_argv(p, true, &argv, e);
	if (r == 0)
		r = ssh_target_env(&env, e);
	if (r == 0)
		r = plain_make_ends(&x, e);
	if (r < 0)
		return r;
	o.argv = (const char *const *)argv;
	o.envp = (const char *const *)env;
	o.in_fd = x.in[0];
	o.out_fd = x.out[1];
	o.session = true;
	r = process_start(&p->watch, &o, e);
	if (r == 0) {
		(void)dup3(p->watch.err, x.err[0], O_CLOEXEC);
		p->watch_relay = plain_relay(
		    p, &x, &(struct exec_spec){.in = in, .out = out, .err = null}, &head, 0, e);
		r = p->watch_relay < 0 ? (int)p->watch_relay : 0;
		cleanup_fd(&p->watch.err);
	}
	plain_close_ends(&x);
	cleanup_fd(&out);
	while (r == 0 && !atomic_load(&p->seen[0])) {
		(void)plain_heard(p, NULL, LOOK_MS);
		if (s->cancel && *s->cancel)
			return err_set(e, ERR_CANCELLED, "stopped while %s was being waited for",
				       p->target.label);
		if (p->hear < 0 && !atomic_load(&p->seen[0]))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "ssh %s: a second session was refused or cut: the machine limits them (MaxSessions, MaxStartups)",
			    p->target.label);
		if (clock_mono_ns() > until)
			return err_set(
			    e, ERR_TIMEOUT,
			    "ssh %s: the login shell there did not start our script a second time within %d s: its "
			    "start files wait for something, or that machine hangs",
			    p->target.label, UP_MS / 1000);
	}
	return r;
}

/* reach: 0, or for how long it may say nothing. */
static int look(struct ssh_target *t, const struct sandbox_spec *s, int64_t reach,
		const char *script, const char *word, struct ssh_said *said, struct err *e)
{
	_cleanup_free_ char *input = NULL;
	struct ssh_look o = {.target = t,
			     .script = script,
			     .timeout_ms = ASK_MS,
			     .reach_ns = reach,
			     .cancel = s->cancel};
	int r;

	if (asprintf(&input, "%s\n%s\n%s\n", t->path, s->lease_id, word) < 0) {
		input = NULL;
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	o.input = input;
	r = ssh_look(&o, said, e);
	if (r == 0 && !said->done)
		r = err_set(e, ERR_UNAVAILABLE,
			    "ssh %s: its shell did not come to the end of our script within %d s",
			    t->label, ASK_MS / 1000);
	return r;
}

static int failed(const struct ssh_target *t, const char *why, struct err *e)
{
	if (str_starts(why, "tool "))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s has no program %s, which runs without a guest program need there: install it",
		    t->label, why + 5);
	if (str_eq(why, "absent"))
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the directory %s is not there on %s: make it there first; nothing was made here or there",
		    t->path, t->label);
	if (str_eq(why, "ends"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "on %s a command could not be ended: without a guest program its processes are found by /proc/PID/environ, as Linux has "
		    "it, and there they are not; nothing was started: mount /proc there, or use a machine with Linux",
		    t->label);
	if (str_starts(why, "place "))
		return err_set(
		    e, ERR_NO_SPACE,
		    "%s: %s/%s cannot be made as a directory of the account alone: disk or quota full, read-only, a link, or somebody else's",
		    t->label, t->path, why + 6);
	return err_set(e, ERR_UNAVAILABLE, "%s: what the run left in %s could not be removed",
		       t->label, t->path);
}

static int open_place(struct plain *p, const struct sandbox_spec *s, bool *ret_there, struct err *e)
{
	bool again = s->resume || !s->manifest;
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_free_ char *why = NULL;
	int r = look(&p->target, s, 0, plain_script_open(),
		     s->keep ? (again ? "shared" : "new")
		     : again ? "old"
			     : "new",
		     &said, e);

	if (r < 0)
		return r;
	reach_note(s->lease_dir, said.login_ns);
	p->login_ns = said.login_ns;
	why = ssh_said_get(&said, "fail");
	p->opened = !why || str_starts(why, "place ");
	if (why)
		return failed(&p->target, why, e);
	*ret_there = said.lines.len && strstr(buf_text(&said.lines), "there\n");
	p->gone = again && !*ret_there;
	if (p->gone)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the directory of this run is not on %s any more (%s): somebody removed it; 'airlock rm --force' gives it up",
		    p->target.label, p->inside);
	return 0;
}

/* Until it has ended: 0, or why not. */
static int settle(struct plain *p, uint32_t id, int said, const volatile int *cancel, struct err *e)
{
	int64_t until = clock_mono_ns() + REMOTE_TREE_MS * NS_PER_MS;
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct sandbox_event ev;
	char text[400];
	ssize_t n;

	for (;;) {
		struct pollfd v = {.fd = p->epfd, .events = POLLIN};
		int r = plain_next_event(&p->sb, &ev, e);

		if (r < 0)
			return r;
		if (r > 0 && ev.type == SE_ENDED)
			return err_set(e, ERR_UNAVAILABLE, "%s", p->sb.why);
		if (r > 0 && ev.id == id && ev.type == SE_EXITED && !ev.code && !ev.signo)
			return 0;
		if (r > 0 && ev.id == id && ev.type != SE_STARTED)
			break;
		if (cancel && *cancel)
			return err_set(e, ERR_CANCELLED,
				       "stopped while the workspace was being sent");
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT,
				       "ssh %s: writing the workspace took longer than %d s",
				       p->target.label, REMOTE_TREE_MS / 1000);
		if (r == 0)
			(void)poll(&v, 1, LOOK_MS);
	}
	n = pread(said, text, sizeof(text) - 1, 0);
	n = n > 0 ? n : 0;
	text[n] = '\0'; /* a file of zeros is read: it ends where they begin, or here */
	n = (ssize_t)strlen(text);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	(void)str_printable(&b, text, (size_t)n);
	return err_set(
	    e, strstr(text, "space") || strstr(text, "quota") ? ERR_NO_SPACE : ERR_UNAVAILABLE,
	    "%s cannot take the workspace: %s", p->target.label,
	    b.len ? buf_text(&b) : "its tar did not say why");
}

static int land(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	static const char script[] =
	    "umask 022; cd \"$0/workspace\" && tar -xpof - && echo plain >../.new-index && mv -f ../.new-index ../index";
	char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)script, (char *)(uintptr_t)p->place.run, NULL};
	char *env[] = {NULL};
	_cleanup_fd_ int rd = -1, wr = -1, said = ssh_tool_said();
	struct exec_spec x = {.argv = argv, .env = env, .cwd = "/", .out = said, .err = said};
	struct err se = ERR_INIT;
	uint32_t id;
	int v[2], r, k;

	if (said < 0 || pipe2(v, O_CLOEXEC) < 0)
		return err_sys(e, errno, "send the workspace: pipe");
	rd = v[0];
	wr = v[1];
	if (fcntl(wr, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, errno, "send the workspace: pipe");
	x.in = rd;
	r = plain_exec(&p->sb, &x, &id, e);
	cleanup_fd(&rd);
	if (r < 0)
		return r;
	k = ssh_send_tar(s, wr, &se);
	cleanup_fd(&wr);
	if (k < 0 && k != -EPIPE) {
		*e = se;
		return k;
	}
	r = settle(p, id, said, s->cancel, e);
	if (r == 0 && k < 0)
		*e = se;
	return r < 0 ? r : k;
}

static int prepare(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	unsigned char raw[16], tag[4];
	char nonce[2 * sizeof(raw) + 1], hex[2 * sizeof(tag) + 1];
	char *run = NULL, *name = NULL;
	int r = ssh_target_parse(s->remote, &p->target, e);

	if (r == 0)
		r = ssh_target_identity(&p->target, s->identities, e);
	if (r < 0)
		return r;
	randombytes_buf(raw, sizeof(raw));
	randombytes_buf(tag, sizeof(tag));
	(void)sodium_bin2hex(nonce, sizeof(nonce), raw, sizeof(raw));
	(void)sodium_bin2hex(hex, sizeof(hex), tag, sizeof(tag));
	if (asprintf(&run, "%s/" REMOTE_RUNS "/%s", p->target.path, s->lease_id) < 0)
		run = NULL;
	p->place.run = run;
	if (asprintf(&name, "%s.%s.", s->lease_id, hex) < 0)
		name = NULL;
	p->place.name = name;
	p->place.nonce = strdup(nonce);
	p->inside = run ? path_join(run, "workspace") : NULL;
	p->mark = plain_mark(nonce);
	p->control = session_control(s);
	p->lease_dir = strdup(s->lease_dir);
	p->seen = mmap(NULL, PLAIN_SEEN * sizeof(*p->seen), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!run || !name || !p->place.nonce || !p->inside || !p->mark || !p->lease_dir ||
	    p->seen == MAP_FAILED)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	return provider_local.acquire(&(struct sandbox_spec){.workspace = "/", .net = NET_HOST},
				      &p->local, e);
}

static int watch_events(struct plain *p, struct err *e)
{
	struct epoll_event ev = {.events = EPOLLIN};

	p->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epfd < 0 ||
	    epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->local->ops->event_fd(p->local), &ev) < 0 ||
	    epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->hear, &ev) < 0 || plain_late_init(p) < 0)
		return err_sys(e, errno, "ssh: watch sessions");
	return 0;
}

/* 1: trees that a guest keeps for next runs were in the way, and are gone. */
static int make_room(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_free_ char *why = NULL;
	int r = look(&p->target, s, 0, plain_script_room(), "", &said, e);

	if (r < 0)
		return r;
	why = ssh_said_get(&said, "fail");
	if (why)
		return failed(&p->target, why, e);
	return said.lines.len && strstr(buf_text(&said.lines), "room\n");
}

/* A run that is there is worth more than what a next one would start from. */
static int land_or_make_room(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	int r = land(p, s, e);
	struct err other = ERR_INIT;

	if (r != -ENOSPC || make_room(p, s, &other) <= 0)
		return r;
	if (e)
		*e = (struct err)ERR_INIT;
	return land(p, s, e);
}

static int bring_up(struct plain *p, const struct sandbox_spec *s, struct err *e)
{
	bool there = false;
	int r = prepare(p, s, e);

	if (r == 0)
		r = open_place(p, s, &there, e);
	if (r == 0)
		r = start_watch(p, s, e);
	if (r == 0)
		r = watch_events(p, e);
	return r == 0 && !there ? land_or_make_room(p, s, e) : r;
}

static int mark_file(const char *lease_dir, const char *name, int flags)
{
	_cleanup_free_ char *path = path_join(lease_dir, name);
	_cleanup_fd_ int fd =
	    path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0600) : -1;

	return fd < 0 ? -errno : 0;
}

static void unmark(const char *lease_dir)
{
	_cleanup_free_ char *path = path_join(lease_dir, "plain");

	if (path)
		(void)unlink(path);
	reach_unmark(lease_dir);
}

bool ssh_plain_is(const char *lease_dir)
{
	return mark_file(lease_dir, "plain", 0) == 0;
}

int ssh_plain_acquire(const struct sandbox_spec *s, enum plain_why why, struct sandbox **ret,
		      struct err *e)
{
	static const char no_bridge[] =
	    "echo 'the bridge needs a program of ours on that machine, or a shared connection whose ports are forwarded, and there is neither' >&2; exit 97";
	struct plain *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	p->seen = MAP_FAILED;
	p->ask = p->hear = p->epfd = p->clock = -1;
	p->watch = (struct process){.pid = -1, .pidfd = -1, .in = -1, .out = -1, .err = -1};
	p->sb.ops = &provider_ssh_plain;
	p->sb.isolation[0] = (struct isolation){"isolation", "not available",
						"commands run as the account that ssh logs in to"};
	p->sb.isolation[1] = (struct isolation){"guest", "not available", whys[why]};
	p->sb.isolation_len = 2;
	r = mark_file(s->lease_dir, "plain", O_CREAT);
	r = r < 0 ? err_sys(e, -r, "%s/plain", s->lease_dir) : bring_up(p, s, e);
	if (r < 0) {
		/* As in ssh.c: nothing else is proof of a loss. */
		r = r == -ENOENT && !p->gone ? -EHOSTUNREACH : r;
		if (!p->opened && !s->resume && s->manifest)
			unmark(s->lease_dir);
		plain_end(p);
		return r;
	}
	p->gateway[0] = (char *)(uintptr_t) "/bin/sh";
	p->gateway[1] = (char *)(uintptr_t) "-c";
	p->gateway[2] = (char *)(uintptr_t)no_bridge;
	p->sb.gateway = p->gateway;
	p->sb.inside = p->inside;
	p->sb.monitor_pid = p->watch.pid;
	(void)proc_start(p->watch.pid, &p->sb.monitor_start);
	*ret = &p->sb;
	return 0;
}

int ssh_plain_forget(const struct sandbox_spec *s, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_free_ char *why = NULL;
	int r = ssh_target_parse(s->remote, &t, e);

	if (r == 0)
		r = ssh_target_identity(&t, s->identities, e);
	if (r == 0)
		r = look(&t, s, reach_ns(s), plain_script_remove(), "", &said, e);
	if (r < 0)
		return r;
	why = ssh_said_get(&said, "fail");
	if (why && str_eq(why, "absent"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the directory %s is not there on %s: not mounted now, or another machine answers; what the run left stays until "
		    "it is there again ('airlock rm --force' gives it up)",
		    t.path, t.label);
	return why ? failed(&t, why, e) : 0;
}
