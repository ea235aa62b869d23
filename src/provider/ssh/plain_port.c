/*
 * The way of a bridge to a machine without a guest: ssh's own remote forwarding, over a connection of its own.
 *
 * Policy: one port of that machine's loopback, which its server chooses, leads to one of ours, where airlock-bridge listens; nothing else
 * is opened. A server may listen on all its addresses whatever it is asked for (GatewayPorts yes), so what listens there is looked at,
 * and nothing begins where that is more than loopback or cannot be told. Safe because: who connects, there or here, has to show the run's token, as to a gateway; and the connection is no
 * shared one, which others would keep alive: its ssh has a life line to us (provider/local.c), so however we end, both ports end too.
 * Nobody else can ask it for more: its socket has a random name, and none once the port is there.
 * Not done: files (queue) where the server forwards nothing, a second connection when this one is cut alone; the first is told.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/listen.h"
#include "provider/ssh/look.h"
#include "provider/ssh/plain_internal.h"
#include "provider/ssh/tool.h"

#define FORWARD_MS 15000
#define UP_MS (REMOTE_CONNECT_S * 1000 + REMOTE_SHELL_MS)
#define LOOK_MS 20
#define STOPPED "stopped while the way for the bridge was being made"
#define NAME_BYTES 8 /* as long as the shared socket's name: what fits for that fits for this */

/* A connection and its port. */
struct way {
	struct sandbox *ssh; /* owned: one ssh */
	char *control;	     /* owned: its socket while it is asked */
	int said;	     /* its stderr */
};

/* Asks the connection. The user's configuration has no say in it, and could ask for more. 0: done. */
static int ask(const struct plain *p, const struct way *w, uint16_t port,
	       const volatile int *cancel, struct buf *out, char *tail)
{
	_cleanup_free_ char *spec = NULL;
	_cleanup_strv_ char **env = NULL;
	struct process_opts o = PROCESS_OPTS_INIT;
	struct err e = ERR_INIT;
	int status = 255;

	if (asprintf(&spec, "127.0.0.1:0:127.0.0.1:%u", port) < 0) {
		spec = NULL;
		return -ENOMEM;
	}
	if (ssh_target_env(&env, &e) < 0)
		return -ENOMEM;
	{
		const char *const argv[] = {"ssh", "-F",       "/dev/null", "-oLogLevel=ERROR",
					    "-S",  w->control, "-O",	    "forward",
					    "-R",  spec,       "--",	    p->target.host,
					    NULL};

		o.argv = argv;
		o.envp = (const char *const *)env;
		o.timeout_ms = FORWARD_MS;
		o.cancel = cancel;
		o.session = true;
		o.out = out;
		(void)process_run(&o, &status, tail, &e);
	}
	return status == 0 ? 0 : -EIO;
}

static char *new_control(const struct plain *p)
{
	_cleanup_free_ char *dir =
	    strndup(p->control, (size_t)(path_base(p->control) - p->control - 1));
	unsigned char raw[NAME_BYTES];
	char hex[2 * NAME_BYTES + 1];

	randombytes_buf(raw, sizeof(raw));
	(void)sodium_bin2hex(hex, sizeof(hex), raw, sizeof(raw));
	return dir ? path_join(dir, hex) : NULL;
}

/* ssh takes the first value that it gets. No session and no command: the connection alone. */
static int words(const struct plain *p, const struct way *w, char ***ret, struct err *e)
{
	static const char *const more[] = {"-N", "-oControlMaster=yes", "-oControlPersist=no"};
	_cleanup_strv_ char **all = NULL;
	int r = ssh_target_argv(&p->target, w->control, "true", &all, e);

	if (r < 0)
		return r;
	r = strv_add(ret, all[0]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(more); i++)
		r = strv_add(ret, more[i]);
	for (size_t i = 1; r == 0 && all[i + 1]; i++)
		r = strv_add(ret, all[i]);
	return r < 0 ? err_set(e, ERR_NOMEM, "ssh: out of memory") : 0;
}

/* True: it is over with. */
static bool ended(struct way *w)
{
	struct err e = ERR_INIT;
	struct sandbox_event ev;
	int r;

	while ((r = w->ssh->ops->next_event(w->ssh, &ev, &e)) > 0)
		if (ev.type != SE_STARTED)
			return true;
	return r < 0;
}

static int start(const struct plain *p, struct way *w, const volatile int *cancel, struct err *e)
{
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	_cleanup_strv_ char **argv = NULL, **env = NULL;
	int64_t until = clock_mono_ns() + UP_MS * NS_PER_MS;
	struct stat st;
	uint32_t id;
	int r;

	w->control = new_control(p);
	w->said = ssh_tool_said();
	if (null < 0 || w->said < 0 || !w->control)
		return err_sys(e, errno, "ssh: open the bridge's connection");
	r = words(p, w, &argv, e);
	if (r == 0)
		r = ssh_target_env(&env, e);
	if (r == 0)
		r = provider_local.acquire(
		    &(struct sandbox_spec){.workspace = "/", .net = NET_HOST}, &w->ssh, e);
	if (r == 0)
		r = w->ssh->ops->exec(w->ssh,
				      &(struct exec_spec){.argv = argv,
							  .env = env,
							  .cwd = "/",
							  .in = null,
							  .out = null,
							  .err = w->said},
				      &id, e);
	while (r == 0 && lstat(w->control, &st) < 0) {
		if (ended(w))
			return -ECONNREFUSED;
		if (cancel && *cancel)
			return -ECANCELED;
		if (clock_mono_ns() > until)
			return -ETIMEDOUT;
		(void)poll(NULL, 0, LOOK_MS);
	}
	return r;
}

static void way_end(struct way *w)
{
	if (w->ssh)
		(void)w->ssh->ops->release(w->ssh, NULL);
	if (w->control)
		(void)unlink(w->control);
	free(w->control);
	cleanup_fd(&w->said);
	*w = (struct way){.said = -1};
}

/* What ssh itself said of it, or who asked it: printable. */
static void why(const struct way *w, const char *tail, struct buf *b)
{
	char said[200];
	ssize_t n = tail[0] || w->said < 0 ? 0 : pread(w->said, said, sizeof(said), 0);
	const char *text = n > 0 ? said : tail;

	(void)str_printable(b, text, strnlen(text, n > 0 ? (size_t)n : 200));
}

/* Who listens on the port there, as the kernel writes it: hexadecimal, each word as that machine stores it. */
#define LISTENERS                                                                                       \
	"read -r p; grep -h \": [0-9A-F]*:$p 0*:0000 0A \" /proc/net/tcp /proc/net/tcp6 2>/dev/null | " \
	"while read -r k l x; do s at ${l%%:*}; done"

static bool is_loopback(const char *hex)
{
	static const char *const known[] = {
	    "0100007F",
	    "7F000001",
	    "00000000000000000000000001000000",
	    "00000000000000000000000000000001",
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (str_eq(hex, known[i]))
			return true;
	return false;
}

/* 0: that machine alone meets the port. */
static int look_at(const struct plain *p, uint16_t port, const volatile int *cancel, struct err *e)
{
	_cleanup_said_ struct ssh_said said = {0};
	char input[8], *at = NULL, *save = NULL;
	const struct ssh_look o = {.target = &p->target,
				   .script = LISTENERS,
				   .input = input,
				   .timeout_ms = UP_MS,
				   .cancel = cancel};
	unsigned n = 0, wide = 0;
	int r;

	(void)snprintf(input, sizeof(input), "%04X\n", port);
	r = ssh_look(&o, &said, e);
	if (r < 0)
		return r;
	at = said.lines.len ? strtok_r(said.lines.data, "\n", &save) : NULL;
	for (; at; at = strtok_r(NULL, "\n", &save)) {
		if (!str_starts(at, "at "))
			continue;
		n++;
		wide += !is_loopback(at + 3);
	}
	if (wide)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s: its ssh server opens the bridge's port to the network and not to that machine alone "
		    "(GatewayPorts yes); nothing was started: set GatewayPorts no, or clientspecified, in its "
		    "sshd_config, or let the guest program run there, which needs no port",
		    p->target.label);
	if (!n || !said.done)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s: /proc/net/tcp there does not show the bridge's port, so whether the network meets it "
		    "cannot be told; nothing was started",
		    p->target.label);
	return 0;
}

int plain_socket(struct sandbox *sb)
{
	const struct plain *p = (struct plain *)sb;
	int fd = p->control && p->ways_len < PLAIN_PORTS ? listen_socket() : -1;

	return fd < 0 ? -1 : fd;
}

/* Why there is none, and the end of what there was. */
static int no_way(const struct plain *p, struct way *w, bool up, const char *tail, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	why(w, tail, &b);
	way_end(w);
	if (!up)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s: a second connection, for the bridge's port, could not be made: the "
		    "machine limits them (MaxStartups), or the way there failed%s%s",
		    p->target.label, b.len ? ": " : "", buf_text(&b));
	return err_set(e, ERR_UNAVAILABLE,
		       "%s: its ssh server opens no port for the bridge: forwarding is off there "
		       "(AllowTcpForwarding)%s%s",
		       p->target.label, b.len ? ": " : "", buf_text(&b));
}

int plain_publish(struct sandbox *sb, uint16_t port, uint16_t *ret_port, const volatile int *cancel,
		  struct err *e)
{
	struct plain *p = (struct plain *)sb;
	char tail[PROCESS_TAIL_MAX + 1] = "";
	_cleanup_buf_ struct buf out = BUF_INIT(256);
	struct way w = {.said = -1};
	char digits[8] = "";
	uint64_t n = 0;
	bool up;
	int r;

	if (p->ways_len == PLAIN_PORTS)
		return err_set(e, ERR_LIMIT, "%s: %d bridges are there already", p->target.label,
			       PLAIN_PORTS);
	up = start(p, &w, cancel, e) == 0;
	if (up && ask(p, &w, port, cancel, &out, tail) == 0)
		/* ssh says which port the server took. */
		(void)snprintf(digits, sizeof(digits), "%.*s",
			       (int)strspn(buf_text(&out), "0123456789"), buf_text(&out));
	if (w.control)
		(void)unlink(w.control);
	r = digits[0] && str_to_u64(digits, UINT16_MAX, &n) == 0 && n ? 0 : -EIO;
	if (r < 0 && !(cancel && *cancel))
		return no_way(p, &w, up, tail, e);
	if (r == 0)
		r = look_at(p, (uint16_t)n, cancel, e);
	if (cancel && *cancel)
		r = err_set(e, ERR_CANCELLED, STOPPED);
	if (r == 0) {
		*ret_port = (uint16_t)n;
		p->way[p->ways_len++] = w.ssh;
		w.ssh = NULL;
	}
	way_end(&w);
	return r;
}

void plain_unpublish(struct plain *p)
{
	while (p->ways_len) {
		struct sandbox *ssh = p->way[--p->ways_len];

		(void)ssh->ops->release(ssh, NULL);
	}
}
