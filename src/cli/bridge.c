/* bridge: the policy bridge in front of an API without a sandbox: gateway and host on this machine. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "bridge/client.h"
#include "cli/cli.h"
#include "engine/interrupt.h"
#include "os/process.h"
#include "os/self.h"

#define POLICY_LOOK_MS 1000

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
    {"transport", 0, "http2", "how requests travel to the host side (default http2)", O_TRANSPORT},
    {"token-file", 0, "FILE",
     "token of the clients: read from FILE, or made and written there if it does not exist",
     O_TOKEN_FILE},
    {"run-id", 0, "ID", "run identity that is set on each request (default: a new one)", O_RUN_ID},
    {"quiet", 'q', NULL, "only errors", O_QUIET},
    {NULL, 0, NULL, NULL, 0},
};

struct words {
	const char *upstream, *credential, *policy, *listen, *token_file, *run_id;
	bool quiet, help;
};

struct bridge_cmd {
	struct words w;
	struct bridge_inputs in;
	struct bridge_client client;
	struct process gateway;
	struct process_opts gateway_opts;
	char *gateway_path, **gateway_env; /* owned */
	const char *gateway_argv[2];
	bool gateway_started;
	char host[INET_ADDRSTRLEN];
	uint16_t port;
	char own_id[ID_LEN + 1];
	struct timespec policy_time; /* of the file that is in force */
	off_t policy_size;
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
		if (strcmp(v, "http2") == 0)
			return 0;
		return err_set(e, ERR_USAGE, "--transport %.40s: this version has http2 only", v);
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

static int start_gateway(struct bridge_cmd *c, int channel, struct err *e)
{
	char host[64], port[48], nonce[96];
	int r = self_helper("airlock-gateway", &c->gateway_path, e);

	if (r < 0)
		return r;
	(void)snprintf(host, sizeof(host), "PAPERCLIP_BRIDGE_HOST=%s", c->host);
	(void)snprintf(port, sizeof(port), "PAPERCLIP_BRIDGE_PORT=%u", c->port);
	(void)snprintf(nonce, sizeof(nonce), "PAPERCLIP_BRIDGE_NONCE=%s", c->in.nonce);
	if (strv_add(&c->gateway_env, "PAPERCLIP_API_BRIDGE_MODE=http2_v1") < 0 ||
	    strv_add(&c->gateway_env, host) < 0 || strv_add(&c->gateway_env, port) < 0 ||
	    strv_add(&c->gateway_env, nonce) < 0)
		return err_set(e, ERR_NOMEM, "gateway: out of memory");
	c->gateway_argv[0] = c->gateway_path;
	c->gateway_opts = (struct process_opts)PROCESS_OPTS_INIT;
	c->gateway_opts.argv = c->gateway_argv;
	c->gateway_opts.envp = (const char *const *)c->gateway_env;
	c->gateway_opts.in_fd = c->gateway_opts.out_fd = channel;
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

static int start(struct bridge_cmd *c, struct err *e)
{
	struct bridge_setup s = {.transport = BRIDGE_HTTP2};
	_cleanup_fd_ int ours = -1, theirs = -1;
	int pair[2], r;

	r = bridge_inputs_read(&c->in, c->w.upstream, c->w.credential,
			       c->w.policy ? c->w.policy : "paperclip", e);
	if (r == 0)
		r = token(c, e);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "bridge channel");
	ours = pair[0];
	theirs = pair[1];
	if (!c->w.run_id && id_new(c->own_id) < 0)
		return err_set(e, ERR_UNAVAILABLE, "bridge: no random numbers for a run id");
	s.run_id = view_of(c->w.run_id ? c->w.run_id : c->own_id);
	s.upstream = view_of(c->in.upstream);
	s.token = view_of(c->in.token);
	s.nonce = view_of(c->in.nonce);
	s.credential = view_of(c->in.credential);
	s.policy_name = view_of(c->in.policy_name);
	s.policy_text = (struct view){c->in.policy_text, c->in.policy_len};
	s.ca = (struct view){c->in.ca, c->in.ca_len};
	r = bridge_client_start(&c->client, &s, ours, ours, -1, e);
	cleanup_fd(&ours);
	if (r == 0)
		r = start_gateway(c, theirs, e);
	cleanup_fd(&theirs);
	if (r < 0)
		return r;
	r = bridge_client_ready(&c->client, e);
	return r < 0 ? gateway_failed(c, r, e) : 0;
}

static bool policy_changed(struct bridge_cmd *c)
{
	struct stat st;
	bool changed;

	if (!c->in.policy_text || stat(c->in.policy_name, &st) < 0)
		return false;
	changed = st.st_size != c->policy_size || st.st_mtim.tv_sec != c->policy_time.tv_sec ||
		  st.st_mtim.tv_nsec != c->policy_time.tv_nsec;
	c->policy_size = st.st_size;
	c->policy_time = st.st_mtim;
	return changed;
}

static void reload(struct bridge_cmd *c)
{
	struct bridge_inputs fresh = {0};
	struct err e = ERR_INIT;
	int r = bridge_inputs_read(&fresh, c->in.upstream, NULL, c->in.policy_name, &e);

	if (r == 0)
		r = bridge_client_policy(&c->client, fresh.policy_text, fresh.policy_len, &e);
	if (r < 0)
		cli_say("the policy stays as it was: %s", e.text);
	else if (!c->w.quiet)
		cli_say("policy %s read again", c->in.policy_name);
	bridge_inputs_done(&fresh);
}

static int serve(struct bridge_cmd *c, struct err *e)
{
	(void)policy_changed(c);
	while (!*interrupt_first()) {
		struct pollfd p[3] = {
		    {.fd = interrupt_fd(), .events = POLLIN},
		    {.fd = bridge_client_fd(&c->client), .events = POLLIN},
		    {.fd = c->gateway.pidfd, .events = POLLIN},
		};

		if (poll(p, 3, POLICY_LOOK_MS) < 0 && errno != EINTR)
			return err_sys(e, errno, "wait");
		if (p[0].revents)
			interrupt_ack();
		bridge_client_poll(&c->client);
		if (c->client.lost)
			return err_set(e, ERR_UNAVAILABLE, "bridge: %s", c->client.why);
		if (p[2].revents)
			return err_set(e, ERR_UNAVAILABLE, "the gateway ended");
		if (policy_changed(c))
			reload(c);
	}
	return 0;
}

static void report(const struct bridge_cmd *c)
{
	const struct bridge_counts *n = &c->client.counts;

	if (!c->w.quiet && c->client.done)
		cli_say("%llu requests, %llu forwarded, %llu refused, %llu failed",
			(unsigned long long)n->requests, (unsigned long long)n->forwarded,
			(unsigned long long)n->refused, (unsigned long long)n->failed);
}

static void clear(struct bridge_cmd *c)
{
	bridge_client_stop(&c->client);
	if (c->gateway_started)
		process_kill(&c->gateway);
	report(c);
	bridge_inputs_done(&c->in);
	free(c->gateway_path);
	strv_free(c->gateway_env);
}

int cmd_bridge(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_bridge, opts_help, NULL};
	struct bridge_cmd c = {0};
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
