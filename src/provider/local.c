/*
 * The local provider: commands run on this host, in the host's workspace, as the caller.
 *
 * Policy: there is NO isolation here. What it does keep is the semantics of commands: clean
 * environment, own session, whole process tree ended at the end, at a time-out and when Airlock
 * dies. It is used only when a person names it, and says so in summary and record (B-09).
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/listen.h"
#include "os/proc.h"
#include "provider/local_super.h"
#include "provider/provider.h"

struct command {
	struct command *next;
	uint32_t id;
	int ctl; /* -1 after its last event */
	pid_t super;
	char *mark; /* AIRLOCK_RUN_ID=..., to find what a killed supervisor left */
};

struct local {
	struct sandbox sb;
	int epfd;
	uint32_t next_id;
	struct command *commands;
};

static int validate(const struct sandbox_spec *s, struct err *e)
{
	if (!s->workspace || s->workspace[0] != '/')
		return err_set(e, ERR_INVALID,
			       "the local provider needs an absolute workspace path");
	if (s->net != NET_HOST)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the local provider cannot keep a command off the network: say --net host "
		    "with it, or use --provider native");
	if (s->binds_len)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--bind-ro has no meaning with the local provider: the command sees the host's "
		    "files as they are");
	if (s->image)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--image has no meaning with the local provider: the command runs on this host's "
		    "system; use --provider native");
	if (s->limits.memory_bytes || s->limits.cpu_milli || s->limits.pids)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--memory, --pids and --cpus cannot be enforced by the local provider: leave "
		    "them out, or use --provider native");
	return 0;
}

static void owner(uid_t *uid, gid_t *gid)
{
	*uid = (uid_t)-1;
	*gid = (gid_t)-1;
}

static int acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct local *l;
	int r = validate(s, e);

	if (r < 0)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "local provider: out of memory");
	l->sb.ops = &provider_local;
	l->sb.isolation[0] =
	    (struct isolation){"isolation", "switched off", "commands run as you, on this host"};
	l->sb.isolation_len = 1;
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0) {
		r = err_sys(e, errno, "local provider: create event queue");
		free(l);
		return r;
	}
	*ret = &l->sb;
	return 0;
}

static struct local *local_of(struct sandbox *sb)
{
	return (struct local *)sb;
}

static struct command *find(struct local *l, uint32_t id)
{
	for (struct command *c = l->commands; c; c = c->next)
		if (c->id == id)
			return c;
	return NULL;
}

static int event_fd(struct sandbox *sb)
{
	return local_of(sb)->epfd;
}

static void close_command(struct local *l, struct command *c)
{
	(void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, c->ctl, NULL);
	(void)close(c->ctl);
	c->ctl = -1;
	while (waitpid(c->super, NULL, 0) < 0 && errno == EINTR)
		continue;
}

/* Repeats until a look finds nobody: a process may fork while it is being looked for. */
static void kill_marked(const char *mark)
{
	for (int i = 0; mark && i < 100 && proc_signal_marked(mark, SIGKILL) > 0; i++)
		continue;
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	struct local *l = local_of(sb);
	struct epoll_event ev;
	struct command *c;
	ssize_t k;
	int n;

	do {
		n = epoll_wait(l->epfd, &ev, 1, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, errno, "local provider: wait for events");
	if (n == 0)
		return 0;
	c = find(l, ev.data.u32);
	if (!c || c->ctl < 0)
		return 0;
	do {
		k = recv(c->ctl, ret, sizeof(*ret), MSG_DONTWAIT);
	} while (k < 0 && errno == EINTR);
	if (k < 0 && errno == EAGAIN)
		return 0;
	if (k != (ssize_t)sizeof(*ret)) {
		/* The supervisor was killed; its command got the parent-death signal. */
		kill_marked(c->mark);
		*ret = (struct sandbox_event){.type = SE_EXITED, .signo = SIGKILL};
		(void)snprintf(ret->step, sizeof(ret->step), "supervisor lost");
	}
	ret->id = c->id;
	if (ret->type != SE_STARTED)
		close_command(l, c);
	return 1;
}

static const char *mark_of(char *const *env)
{
	for (; *env; env++)
		if (str_starts(*env, "AIRLOCK_RUN_ID="))
			return *env;
	return NULL;
}

static int start(struct local *l, const struct exec_spec *x, struct command *c, struct err *e)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = c->id};
	int sp[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sp) < 0)
		return err_sys(e, errno, "local provider: create socket pair");
	c->super = fork();
	if (c->super == 0) {
		/* The life line must have one holder only: copies of other commands' ends go too. */
		(void)close(sp[0]);
		for (struct command *o = l->commands; o; o = o->next)
			if (o->ctl >= 0)
				(void)close(o->ctl);
		super_main(sp[1], x);
	}
	(void)close(sp[1]);
	if (c->super < 0) {
		(void)close(sp[0]);
		return err_sys(e, errno, "local provider: start a process");
	}
	c->ctl = sp[0];
	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, c->ctl, &ev) < 0) {
		int r = err_sys(e, errno, "local provider: watch the command");

		close_command(l, c);
		return r;
	}
	return 0;
}

static int exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	struct local *l = local_of(sb);
	const char *mark = mark_of(x->env);
	struct command *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(e, ERR_NOMEM, "local provider: out of memory");
	c->id = ++l->next_id;
	c->ctl = -1;
	c->mark = mark ? strdup(mark) : NULL;
	r = start(l, x, c, e);
	if (r < 0) {
		free(c->mark);
		free(c);
		return r;
	}
	c->next = l->commands;
	l->commands = c;
	*ret_id = c->id;
	return 0;
}

static int request(struct sandbox *sb, uint32_t id, const struct super_msg *m)
{
	struct command *c = find(local_of(sb), id);

	if (!c || c->ctl < 0)
		return -ESRCH;
	return send(c->ctl, m, sizeof(*m), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int send_signal(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	int r = request(sb, id, &(struct super_msg){.what = SUPER_SIGNAL, .signo = signo});

	return r < 0 && r != -ESRCH && r != -EPIPE ? err_sys(e, -r, "signal the command") : 0;
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	return request(sb, id,
		       &(struct super_msg){.what = SUPER_WINSIZE, .rows = rows, .cols = cols});
}

static int release(struct sandbox *sb, struct err *e)
{
	struct local *l = local_of(sb);

	(void)e;
	while (l->commands) {
		struct command *c = l->commands;

		l->commands = c->next;
		if (c->ctl >= 0) {
			/* Shut, the life line kills the tree; the supervisor's end is the proof. */
			(void)shutdown(c->ctl, SHUT_RDWR);
			close_command(l, c);
		}
		free(c->mark);
		free(c);
	}
	(void)close(l->epfd);
	free(l);
	return 0;
}

static void detach(struct sandbox *sb)
{
	(void)release(sb, NULL);
}

static int destroy_storage(const char *lease_dir, struct err *e)
{
	(void)lease_dir;
	(void)e;
	return 0;
}

/* Its network is this machine's. */
static int new_socket(struct sandbox *sb)
{
	int fd = listen_socket();

	(void)sb;
	return fd < 0 ? -1 : fd;
}

const struct provider_ops provider_local = {
    .name = "local",
    .isolates = false,
    .in_place = true,
    .statement = "NO ISOLATION: the command ran as you, on this host, in the workspace itself",
    .validate = validate,
    .owner = owner,
    .acquire = acquire,
    .attach = acquire,
    .event_fd = event_fd,
    .next_event = next_event,
    .exec = exec,
    .socket = new_socket,
    .signal = send_signal,
    .winsize = winsize,
    .pack = NULL,
    .release = release,
    .detach = detach,
    .destroy_storage = destroy_storage,
};
