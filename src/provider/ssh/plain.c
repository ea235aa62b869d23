/*
 * Policy: as ssh.c: no isolation there, and it says so. What comes back of a command goes through a forked relay that reads none of it; what
 * the scripts answer is read here line by line, bounded, behind a nonce (look.h), or as one of three words of the session
 * that stays. No word or variable of a command is in a command line of ssh. The exit status is ssh's, never a file's.
 */
#include "provider/ssh/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "provider/ssh/explain.h"
#include "provider/ssh/plain_internal.h"
#include "provider/ssh/relay.h"
#include "provider/ssh/unreached.h"
#include "wire/remote.h"

#define PONG_MS 5000
#define END_MS 8000

static struct plain *plain_of(struct sandbox *sb)
{
	return (struct plain *)sb;
}

/* Sessions of ssh. ---------------------------------------------------------------------------- */

void plain_close_ends(struct plain_ends *x)
{
	for (int i = 0; i < 2; i++) {
		cleanup_fd(&x->in[i]);
		cleanup_fd(&x->out[i]);
		cleanup_fd(&x->err[i]);
	}
}

int plain_make_ends(struct plain_ends *x, struct err *e)
{
	*x = (struct plain_ends){{-1, -1}, {-1, -1}, {-1, -1}};
	if (pipe2(x->in, O_CLOEXEC) == 0 && pipe2(x->out, O_CLOEXEC) == 0 &&
	    pipe2(x->err, O_CLOEXEC) == 0)
		return 0;
	(void)err_sys(e, errno, "ssh: create a pipe");
	plain_close_ends(x);
	return -EMFILE;
}

/* ssh takes the first value that it gets. `first`: the session whose connection others share. */
int plain_argv(const struct plain *p, bool first, char ***ret, struct err *e)
{
	static const char *const more[] = {"-oLogLevel=QUIET", "-oControlMaster=no"};
	_cleanup_strv_ char **words = NULL;
	char **v = NULL;
	int r = ssh_target_argv(&p->target, p->control, plain_boot(), &words, e);

	if (r < 0)
		return r;
	r = strv_add(&v, words[0]);
	for (size_t i = 0; r == 0 && !first && i < ARRAY_LEN(more); i++)
		r = strv_add(&v, more[i]);
	for (size_t i = 1; r == 0 && words[i]; i++)
		r = strv_add(&v, words[i]);
	if (r < 0) {
		strv_free(v);
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	*ret = v;
	return 0;
}

pid_t plain_relay(struct plain *p, const struct plain_ends *x, const struct exec_spec *io,
		  const struct buf *head, size_t slot, struct err *e)
{
	const struct ssh_relay r = {.head = head->data,
				    .head_len = head->len,
				    .mark = p->mark,
				    .in = io->in,
				    .out = io->out,
				    .err = io->err < 0 ? io->out : io->err,
				    .to = x->in[1],
				    .from = x->out[0],
				    .other = x->err[0],
				    .alive = slot == 0,
				    .seen = &p->seen[slot]};

	atomic_store(&p->seen[slot], false);
	return ssh_relay_start(&r, e);
}

size_t plain_slot(unsigned number)
{
	return 1 + number % (PLAIN_SEEN - 1);
}

int plain_exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	struct plain *p = plain_of(sb);
	_cleanup_buf_ struct buf head = BUF_INIT(PLAIN_LINE_ROOM);
	_cleanup_strv_ char **argv = NULL, **env = NULL;
	struct plain_command *c;
	struct plain_ends pipes;
	int r;

	if (x->tty)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s: a terminal needs the guest program, and %s: run the command without one",
		    p->target.label, p->sb.isolation[1].detail);
	if (plain_put_command(&head, &p->place, p->number + 1, x) < 0)
		return err_set(e, ERR_LIMIT,
			       "command not started: its words and variables are too long");
	r = plain_argv(p, false, &argv, e);
	if (r == 0)
		r = ssh_target_env(&env, e);
	if (r == 0)
		r = plain_make_ends(&pipes, e);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c) {
		plain_close_ends(&pipes);
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	plain_late_keep(p);
	c->number = ++p->number;
	c->relay = plain_relay(p, &pipes, x, &head, plain_slot(c->number), e);
	r = c->relay < 0 ? (int)c->relay : 0;
	if (r == 0) {
		const struct exec_spec ssh = {.argv = argv,
					      .env = env,
					      .cwd = "/",
					      .in = pipes.in[0],
					      .out = pipes.out[1],
					      .err = pipes.err[1]};

		r = p->local->ops->exec(p->local, &ssh, &c->id, e);
	}
	c->over = r < 0;
	c->next = p->commands;
	p->commands = c;
	plain_late_watch(p, c);
	plain_close_ends(&pipes);
	*ret_id = c->id;
	return r;
}

/* The session that stays. --------------------------------------------------------------------- */

void plain_ask(struct plain *p, const char *line)
{
	size_t n = strlen(line);

	/* Short of a word its relay is gone, which its end tells. */
	if (p->ask >= 0 && write(p->ask, line, n) != (ssize_t)n)
		cleanup_fd(&p->ask);
}

bool plain_heard(struct plain *p, const char *word, int ms)
{
	int64_t until = clock_mono_ns() + ms * NS_PER_MS;

	for (;;) {
		struct pollfd v = {.fd = p->hear, .events = POLLIN};
		ssize_t k;

		if (p->hear < 0 || poll(&v, 1, clock_poll_ms(until, clock_mono_ns())) <= 0)
			return false;
		if (p->said_len == sizeof(p->said))
			p->said_len = 0;
		k = read(p->hear, p->said + p->said_len, sizeof(p->said) - p->said_len);
		if (k <= 0) {
			cleanup_fd(&p->hear);
			return false;
		}
		p->said_len += (size_t)k;
		if (word && memmem(p->said, p->said_len, word, strlen(word))) {
			p->said_len = 0;
			return true;
		}
		if (!word || clock_mono_ns() > until)
			return false;
	}
}

/* Events. ------------------------------------------------------------------------------------- */

/* sb.why says why. */
static int over(struct plain *p, struct sandbox_event *ret)
{
	unreached_note(p->lease_dir, p->sb.why);
	unreached_goes_on(p->lease_dir, 0);
	p->ended = true;
	*ret = (struct sandbox_event){.type = SE_ENDED};
	return 1;
}

static int lost(struct plain *p, struct sandbox_event *ret)
{
	(void)snprintf(
	    p->sb.why, sizeof(p->sb.why),
	    "the connection to %.200s was lost; without a guest there the command ends with it: its script there, or that machine, ends it "
	    "within %d s",
	    p->target.label, REMOTE_SILENT_MS / 1000);
	return over(p, ret);
}

static struct plain_command *find(struct plain *p, uint32_t id)
{
	struct plain_command *c = p->commands;

	while (c && c->id != id)
		c = c->next;
	return c;
}

/* 255 is ssh's own word for a session that failed, and may be the command's. */
static int judge(struct plain *p, struct sandbox_event *ev)
{
	struct plain_command *c = find(p, ev->id);

	if (c && ev->type != SE_STARTED)
		c->over = true;
	ev->cpu_ns = ev->maxrss_kib = 0;
	ev->leftovers = 0;
	if (ev->type != SE_EXITED || (ev->code != 255 && !ev->signo))
		return 1;
	plain_ask(p, "p 1\n");
	if (!plain_heard(p, "pong 1\n", PONG_MS))
		return lost(p, ev);
	if (ev->code == 255 && c && atomic_load(&p->seen[plain_slot(c->number)]))
		return 1;
	ev->type = SE_FAILED;
	ev->sys = ECONNABORTED;
	(void)snprintf(ev->step, sizeof(ev->step), "session of ssh");
	return 1;
}

int plain_next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	struct plain *p = plain_of(sb);
	int r;

	if (p->ended) {
		*ret = (struct sandbox_event){.type = SE_ENDED};
		return 1;
	}
	r = p->local->ops->next_event(p->local, ret, e);
	if (r > 0)
		return judge(p, ret);
	if (r == 0) {
		(void)plain_heard(p, NULL, 0);
		if (p->hear < 0)
			return lost(p, ret);
		if (plain_late(p))
			return over(p, ret);
	}
	return r;
}

static int event_fd(struct sandbox *sb)
{
	return plain_of(sb)->epfd;
}

static int signal_command(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	const struct plain_command *c = find(plain_of(sb), id);
	char line[64];

	(void)e;
	if (!c)
		return 0;
	(void)snprintf(line, sizeof(line), "k %u. %d\n", c->number, signo);
	plain_ask(plain_of(sb), line);
	return 0;
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	(void)sb;
	(void)id;
	(void)rows;
	(void)cols;
	return 0;
}

/* Ends. --------------------------------------------------------------------------------------- */

static void end_relay(pid_t pid)
{
	if (pid <= 0)
		return;
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

void plain_end_relay(struct plain_command *c)
{
	end_relay(c->relay);
	c->relay = -1;
}

void plain_end(struct plain *p)
{
	plain_unpublish(p);
	plain_ask(p, "q\n");
	if (p->seen != MAP_FAILED && atomic_load(&p->seen[0]))
		(void)plain_heard(p, "ended\n", END_MS);
	if (p->local)
		(void)p->local->ops->release(p->local, NULL);
	while (p->commands) {
		struct plain_command *c = p->commands;

		p->commands = c->next;
		plain_end_relay(c);
		free(c);
	}
	end_relay(p->watch_relay);
	process_kill_one(&p->watch);
	cleanup_fd(&p->ask);
	cleanup_fd(&p->hear);
	cleanup_fd(&p->clock);
	cleanup_fd(&p->epfd);
	if (p->seen != MAP_FAILED)
		(void)munmap(p->seen, PLAIN_SEEN * sizeof(*p->seen));
	ssh_target_done(&p->target);
	free((char *)(uintptr_t)p->place.run);
	free((char *)(uintptr_t)p->place.name);
	free((char *)(uintptr_t)p->place.nonce);
	free(p->control);
	free(p->lease_dir);
	free(p->inside);
	free(p->mark);
	free(p);
}

static int release(struct sandbox *sb, struct err *e)
{
	(void)e;
	plain_end(plain_of(sb));
	return 0;
}

static void detach(struct sandbox *sb)
{
	plain_end(plain_of(sb));
}

const struct provider_ops provider_ssh_plain = {
    .name = "ssh",
    .isolates = false,
    .in_place = false,
    .elsewhere = true,
    .statement = "",
    .event_fd = event_fd,
    .next_event = plain_next_event,
    .exec = plain_exec,
    .socket = plain_socket,
    .publish = plain_publish,
    .signal = signal_command,
    .winsize = winsize,
    .pack = NULL, /* by tar */
    .release = release,
    .detach = detach,
};
