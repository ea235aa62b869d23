/* bridge: the policy bridge in front of an API without a sandbox: gateway and host on this machine. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "bridge/link.h"
#include "bridge/queuemake.h"
#include "cli/cli.h"
#include "engine/interrupt.h"
#include "os/listen.h"
#include "os/process.h"
#include "os/self.h"

#define TURN_MS 200 /* a lost helper is replaced, a changed policy seen, as soon as that */

enum id {
	O_UPSTREAM = 1,
	O_CREDENTIAL,
	O_POLICY,
	O_LISTEN,
	O_TRANSPORT,
	O_TOKEN_FILE,
	O_RUN_ID,
	O_QUIET,
};

const struct opt opts_bridge[] = {
    {"upstream", 0, "URL", "the one API behind the bridge: http(s)://HOST[:PORT] or unix:/SOCKET",
     O_UPSTREAM},
    {"credential-file", 0, "FILE", "the key that the bridge shows to the API", O_CREDENTIAL},
    {"policy", 0, "NAME|FILE",
     "which calls pass (default paperclip); a file is read again when it changes", O_POLICY},
    {"listen", 0, "ADDRESS:PORT", "where clients connect, as 127.0.0.1:3101", O_LISTEN},
    {"transport", 0, "direct|http2|queue",
     "how requests travel to the host side: it listens itself (default), a stream, or files",
     O_TRANSPORT},
    {"token-file", 0, "FILE",
     "token of the clients: read from FILE, or made and written there if it does not exist",
     O_TOKEN_FILE},
    {"run-id", 0, "ID", "run identity that is set on each request (default: a new one)", O_RUN_ID},
    {"quiet", 'q', NULL, "only errors", O_QUIET},
    {NULL, 0, NULL, NULL, 0},
};

struct words {
	const char *upstream, *credential, *policy, *listen, *token_file, *run_id;
	enum bridge_transport transport;
	bool quiet, help;
};

struct bridge_cmd {
	struct words w;
	struct bridge_inputs in;
	struct bridge_link link;
	struct bridge_counts counts;
	int queue_parent; /* owned; -1: none */
	char queue_name[QUEUEMAKE_NAME];
	char *queue_dir; /* owned */
	bool up, terminal;
	struct process gateway;
	struct process_opts gateway_opts;
	char *gateway_path, **gateway_env; /* owned */
	const char *gateway_argv[2];
	bool gateway_started;
	char host[INET_ADDRSTRLEN];
	uint16_t port;
	char own_id[ID_LEN + 1];
	int hangup; /* signalfd of SIGHUP; owned, -1: none */
};

static int set(void *arg, const struct opt *o, const char *v, struct err *e)
{
	struct words *w = arg;

	switch (o->id) {
	case O_UPSTREAM:
		w->upstream = v;
		return 0;
	case O_CREDENTIAL:
		w->credential = v;
		return 0;
	case O_POLICY:
		w->policy = v;
		return 0;
	case O_LISTEN:
		w->listen = v;
		return 0;
	case O_TOKEN_FILE:
		w->token_file = v;
		return 0;
	case O_RUN_ID:
		w->run_id = v;
		return 0;
	case O_TRANSPORT:
		return bridge_transport_parse(v, &w->transport) == 0
			   ? 0
			   : err_set(e, ERR_USAGE, "--transport %.40s: give direct, http2 or queue",
				     v);
	case O_QUIET:
		w->quiet = true;
		return 0;
	default:
		w->help = true;
		return 0;
	}
}

static int parse_listen(struct bridge_cmd *c, struct err *e)
{
	const char *s = c->w.listen, *colon = strrchr(s, ':');
	struct in_addr a;
	uint64_t port;

	if (!colon || (size_t)(colon - s) >= sizeof(c->host))
		return err_set(e, ERR_USAGE, "--listen %.60s: give ADDRESS:PORT, as 127.0.0.1:3101",
			       s);
	memcpy(c->host, s, (size_t)(colon - s));
	if (inet_pton(AF_INET, c->host, &a) != 1)
		return err_set(e, ERR_USAGE, "--listen %.60s: the address must be numeric IPv4", s);
	if (str_to_u64(colon + 1, 65535, &port) < 0 || port == 0)
		return err_set(e, ERR_USAGE, "--listen %.60s: the port must be 1 to 65535", s);
	c->port = (uint16_t)port;
	if ((ntohl(a.s_addr) >> 24) != 127)
		cli_say(
		    "listening on %s: whoever reaches this machine and has the token can use the bridge, and "
		    "what they send is not encrypted",
		    c->host);
	return 0;
}

/* A file that is there gives the token; one that is not gets it. */
static int token(struct bridge_cmd *c, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_fd_ int fd = -1;
	int r;

	if (!c->w.token_file)
		return 0;
	if (access(c->w.token_file, F_OK) == 0) {
		r = bridge_read_secret(c->w.token_file, BRIDGE_TOKEN_MAX, &text, e);
		if (r == 0)
			(void)snprintf(c->in.token, sizeof(c->in.token), "%s", text);
		if (text)
			sodium_memzero(text, strlen(text));
		return r;
	}
	fd = open(c->w.token_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || dprintf(fd, "%s\n", c->in.token) < 0)
		return err_sys(e, errno, "write the token to %s", c->w.token_file);
	return 0;
}

static struct view view_of(const char *s)
{
	return s ? (struct view){s, strlen(s)} : (struct view){0};
}

static int gateway_env(struct bridge_cmd *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_MAX + 64);
	const char *const pairs[][2] = {
	    {"PAPERCLIP_API_BRIDGE_MODE", bridge_transport_mode(c->link.o.transport)},
	    {"PAPERCLIP_BRIDGE_CONTROL", "1"},
	    {"PAPERCLIP_BRIDGE_HOST", c->host},
	    {"PAPERCLIP_BRIDGE_NONCE", c->in.nonce},
	    {"PAPERCLIP_BRIDGE_QUEUE_DIR", c->queue_dir},
	    {"PAPERCLIP_BRIDGE_TOKEN", c->queue_dir ? c->in.token : NULL},
	};
	int r = 0;

	(void)buf_putf(&b, "PAPERCLIP_BRIDGE_PORT=%u", c->port);
	r = strv_add(&c->gateway_env, buf_text(&b));
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(pairs); i++) {
		if (!pairs[i][1])
			continue;
		buf_reset(&b);
		(void)buf_putf(&b, "%s=%s", pairs[i][0], pairs[i][1]);
		r = strv_add(&c->gateway_env, buf_text(&b));
	}
	if (b.data)
		sodium_memzero(b.data, b.cap);
	return r;
}

static int start_gateway(struct bridge_cmd *c, int control, struct err *e)
{
	int r = self_helper("airlock-gateway", &c->gateway_path, e);

	if (r < 0)
		return r;
	if (gateway_env(c) < 0)
		return err_set(e, ERR_NOMEM, "gateway: out of memory");
	c->gateway_argv[0] = c->gateway_path;
	c->gateway_opts = (struct process_opts)PROCESS_OPTS_INIT;
	c->gateway_opts.argv = c->gateway_argv;
	c->gateway_opts.envp = (const char *const *)c->gateway_env;
	c->gateway_opts.in_fd = c->gateway_opts.out_fd = control;
	r = process_start(&c->gateway, &c->gateway_opts, e);
	c->gateway_started = r == 0;
	return r;
}

/* The gateway's own words, if it ended: "address already in use" helps more than "it ended". */
static int gateway_failed(struct bridge_cmd *c, int r, struct err *e)
{
	char text[400];
	ssize_t n;

	(void)fcntl(c->gateway.err, F_SETFL, O_NONBLOCK);
	n = read(c->gateway.err, text, sizeof(text) - 1);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n > 0) {
		text[n] = '\0';
		(void)err_set(e, ERR_UNAVAILABLE, "%s", text);
	}
	process_kill(&c->gateway);
	c->gateway_started = false;
	return err_wrap(e, r, "gateway on %s:%u", c->host, c->port);
}

static void note(void *arg, bool bad, const char *text)
{
	const struct bridge_cmd *c = arg;

	if (bad || !c->w.quiet)
		cli_say("%s", text);
}

/* Of this user alone; in memory where the machine has that. */
static int make_queue(struct bridge_cmd *c, int *ret, struct err *e)
{
	static const char *const places[] = {NULL, "/dev/shm", "/tmp"};
	const char *place = getenv("XDG_RUNTIME_DIR");
	struct buf b = BUF_INIT(PATH_MAX);

	for (size_t i = 0; i < ARRAY_LEN(places) && c->queue_parent < 0; i++) {
		place = i ? places[i] : place;
		if (place && *place == '/')
			c->queue_parent = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (c->queue_parent < 0)
		return err_sys(e, errno, "queue in %s", place ? place : "/tmp");
	queuemake_sweep(c->queue_parent);
	*ret = queuemake_new(c->queue_parent, c->queue_name, e);
	if (*ret < 0)
		return *ret;
	(void)buf_putf(&b, "%s/%s", place, c->queue_name);
	c->queue_dir = buf_take(&b);
	return c->queue_dir ? 0 : err_set(e, ERR_NOMEM, "queue: out of memory");
}

static int make_listener(struct bridge_cmd *c, int *ret, struct err *e)
{
	int r;

	*ret = listen_socket();
	r = *ret < 0 ? *ret : listen_on(*ret, c->host, c->port, &c->port);
	return r < 0 ? err_sys(e, -r, "listen on %s port %u", c->host, c->port) : 0;
}

static int start(struct bridge_cmd *c, struct err *e)
{
	struct bridge_link_opts o = {.in = &c->in,
				     .transport = c->w.transport,
				     .dir = -1,
				     .audit = -1,
				     .note = note,
				     .arg = c};
	_cleanup_fd_ int theirs = -1, dir = -1, listener = -1;
	int r;

	r = bridge_inputs_read(&c->in, c->w.upstream, c->w.credential,
			       c->w.policy ? c->w.policy : "paperclip", e);
	if (r == 0)
		r = token(c, e);
	if (r < 0)
		return r;
	if (!c->w.run_id && id_new(c->own_id) < 0)
		return err_set(e, ERR_UNAVAILABLE, "bridge: no random numbers for a run id");
	o.run_id = view_of(c->w.run_id ? c->w.run_id : c->own_id);
	if (c->w.transport == BRIDGE_QUEUE)
		r = make_queue(c, &dir, e);
	if (c->w.transport == BRIDGE_DIRECT)
		r = make_listener(c, &listener, e);
	o.dir = dir;
	o.listener = listener;
	if (r == 0)
		r = link_open(&c->link, &o, &theirs, e);
	if (r == 0 && listener < 0)
		r = start_gateway(c, theirs, e);
	cleanup_fd(&theirs);
	if (r < 0)
		return r;
	r = link_ready(&c->link, e);
	c->up = r == 0;
	return r < 0 && listener < 0 ? gateway_failed(c, r, e) : r;
}

/*
 * SIGHUP reads the policy again, as servers do. When it comes because the terminal is gone, so is whoever watched this
 * program, and it ends.
 */
static int watch_hangup(struct bridge_cmd *c, struct err *e)
{
	sigset_t set;

	c->terminal = isatty(STDERR_FILENO);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(e, errno, "block SIGHUP");
	c->hangup = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->hangup < 0 ? err_sys(e, errno, "watch SIGHUP") : 0;
}

static bool hung_up(struct bridge_cmd *c)
{
	struct signalfd_siginfo si;

	while (read(c->hangup, &si, sizeof(si)) > 0) {
		if (c->terminal && !isatty(STDERR_FILENO))
			return true;
		if (c->in.policy_text)
			link_reread(&c->link);
	}
	return false;
}

static int serve(struct bridge_cmd *c, struct err *e)
{
	while (!*interrupt_first()) {
		struct pollfd p[4] = {
		    {.fd = interrupt_fd(), .events = POLLIN},
		    {.fd = bridge_client_fd(&c->link.client), .events = POLLIN},
		    {.fd = c->gateway.pidfd, .events = POLLIN},
		    {.fd = c->hangup, .events = POLLIN},
		};

		if (poll(p, 4, TURN_MS) < 0 && errno != EINTR)
			return err_sys(e, errno, "wait");
		if (p[0].revents)
			interrupt_ack();
		if (p[3].revents && hung_up(c))
			return 0;
		if (p[2].revents)
			return err_set(e, ERR_UNAVAILABLE, "the gateway ended");
		if (!link_poll(&c->link))
			return err_set(e, ERR_UNAVAILABLE, "bridge: %s", c->link.why);
	}
	return 0;
}

static void report(const struct bridge_cmd *c)
{
	const struct bridge_counts *n = &c->counts;

	if (!c->w.quiet && c->up)
		cli_say("%llu requests, %llu forwarded, %llu refused, %llu failed",
			(unsigned long long)n->requests, (unsigned long long)n->forwarded,
			(unsigned long long)n->refused, (unsigned long long)n->failed);
}

static void clear(struct bridge_cmd *c)
{
	link_stop(&c->link, &c->counts);
	if (c->gateway_started)
		process_kill(&c->gateway);
	if (c->queue_parent >= 0)
		queuemake_remove(c->queue_parent, c->queue_name);
	cleanup_fd(&c->queue_parent);
	cleanup_fd(&c->hangup);
	report(c);
	bridge_inputs_done(&c->in);
	free(c->queue_dir);
	free(c->gateway_path);
	strv_free(c->gateway_env);
}

int cmd_bridge(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_bridge, opts_help, NULL};
	struct bridge_cmd c = {
	    .queue_parent = -1, .hangup = -1, .gateway.pidfd = -1, .w.transport = BRIDGE_DIRECT};
	struct opt_parse p = {
	    .tables = tables, .verb = "bridge", .permute = true, .set = set, .arg = &c.w};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && c.w.help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && p.words)
		r = err_set(&e, ERR_USAGE, "bridge takes options only, not '%.60s'", p.words[0]);
	if (r == 0 && (!c.w.upstream || !c.w.listen))
		r = err_set(&e, ERR_USAGE, "bridge needs --upstream URL and --listen ADDRESS:PORT");
	if (r == 0)
		r = parse_listen(&c, &e);
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = watch_hangup(&c, &e);
	if (r == 0)
		r = start(&c, &e);
	if (r == 0 && !c.w.quiet)
		cli_say("bridge to %s on http://%s:%u, policy %s; Ctrl-C ends it", c.in.upstream,
			c.host, c.port, c.in.policy_name);
	if (r == 0) {
		(void)printf("PAPERCLIP_API_URL=http://%s:%u\n", c.host, c.port);
		if (!c.w.token_file)
			(void)printf("PAPERCLIP_API_KEY=%s\n", c.in.token);
		(void)fflush(stdout);
		r = serve(&c, &e);
	}
	strv_free(p.words);
	clear(&c);
	return r < 0 ? cli_fail(&e) : 0;
}
