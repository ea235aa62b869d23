#include "engine/apibridge.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/self.h"
#include "policy/envvars.h"
#include "wire/guest.h"

#define TRIES 3 /* ports that somebody else may have taken */

/* A port that is free here. In a sandbox with a network of its own nearly every port is. */
static int free_port(uint16_t *ret, struct err *e)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return err_sys(e, errno, "find a port for the gateway");
	*ret = ntohs(a.sin_port);
	return 0;
}

static int put_var(char ***env, const char *name, const char *value)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	int r;

	(void)buf_putf(&b, "%s=%s", name, value);
	r = b.err ? b.err : envvars_set(env, buf_text(&b));
	if (b.data)
		sodium_memzero(b.data, b.len);
	return r;
}

static int start_gateway(struct apibridge *b, struct sandbox *sb, int channel, int errors,
			 struct err *e)
{
	_cleanup_free_ char *host_path = NULL;
	_cleanup_strv_ char **env = NULL, **argv = NULL;
	struct exec_spec x = {.in = channel, .out = channel, .err = errors, .cwd = "/"};
	char port[8];
	int r;

	if (!sb->ops->isolates) {
		r = self_helper("airlock-gateway", &host_path, e);
		if (r < 0)
			return r;
	}
	(void)snprintf(port, sizeof(port), "%u", b->port);
	r = strv_add(&argv, host_path ? host_path : GATEWAY_PATH);
	if (r == 0)
		r = put_var(&env, "PAPERCLIP_API_BRIDGE_MODE", bridge_transport_mode(BRIDGE_HTTP2));
	if (r == 0)
		r = put_var(&env, "PAPERCLIP_BRIDGE_HOST", "127.0.0.1");
	if (r == 0)
		r = put_var(&env, "PAPERCLIP_BRIDGE_PORT", port);
	if (r == 0)
		r = put_var(&env, "PAPERCLIP_BRIDGE_NONCE", b->in.nonce);
	if (r < 0)
		return err_set(e, ERR_NOMEM, "gateway: out of memory");
	x.argv = argv;
	x.env = env;
	return sb->ops->exec(sb, &x, &b->gateway, e);
}

static struct view view_of(const char *s)
{
	return s ? (struct view){s, strlen(s)} : (struct view){0};
}

/* Value of a variable of the command; empty if it has none. prefix ends with '='. */
static struct view variable(char *const *env, const char *prefix)
{
	for (; env && *env; env++)
		if (str_starts(*env, prefix))
			return view_of(*env + strlen(prefix));
	return (struct view){0};
}

static int start_helper(struct apibridge *b, const struct apibridge_opts *o, char *const *env,
			int channel, struct err *e)
{
	const struct bridge_setup s = {
	    .transport = BRIDGE_HTTP2,
	    .without_landlock = o->q->without & WITHOUT_LANDLOCK,
	    .without_seccomp = o->q->without & WITHOUT_SECCOMP,
	    .upstream = view_of(b->in.upstream),
	    .token = view_of(b->in.token),
	    .nonce = view_of(b->in.nonce),
	    .credential = view_of(b->in.credential),
	    .run_id = view_of(o->run_id),
	    .agent_id = variable(env, "PAPERCLIP_AGENT_ID="),
	    .company_id = variable(env, "PAPERCLIP_COMPANY_ID="),
	    .task_id = variable(env, "PAPERCLIP_TASK_ID="),
	    .policy_name = view_of(b->in.policy_name),
	    .policy_text = {b->in.policy_text, b->in.policy_len},
	    .ca = {b->in.ca, b->in.ca_len},
	};

	return bridge_client_start(&b->client, &s, channel, channel, o->audit, e);
}

/* What the gateway had to say before it ended. */
static void add_errors(int fd, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2048);
	char text[400];
	ssize_t n;

	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	n = read(fd, text, sizeof(text));
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n <= 0 || !e)
		return;
	(void)str_printable(&b, text, (size_t)n);
	(void)snprintf(e->text + strlen(e->text), sizeof(e->text) - strlen(e->text), " (%s)",
		       buf_text(&b));
}

static int try_start(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		     char *const *env, struct err *e)
{
	_cleanup_fd_ int ours = -1, theirs = -1, errors = -1, errors_in = -1;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "bridge channel");
	ours = pair[0];
	theirs = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, errno, "bridge channel");
	errors = pair[0];
	errors_in = pair[1];
	r = free_port(&b->port, e);
	if (r == 0)
		r = start_helper(b, o, env, ours, e);
	cleanup_fd(&ours);
	/* Safe because: what travels into the sandbox is its own end of a socket pair, and a pipe to write into. */
	if (r == 0)
		r = start_gateway(b, sb, theirs, errors_in, e);
	cleanup_fd(&theirs);
	cleanup_fd(&errors_in);
	if (r < 0)
		return r;
	r = bridge_client_ready(&b->client, e);
	if (r < 0)
		add_errors(errors, e);
	return r;
}

int apibridge_start(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		    char ***env, struct err *e)
{
	const struct api_request *api = &o->q->api;
	char url[48];
	int r;

	*b = (struct apibridge){0};
	r = bridge_inputs_read(&b->in, api->url, api->key_file,
			       api->policy ? api->policy : "paperclip", e);
	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = try_start(b, sb, o, *env, e);
		if (r == 0)
			break;
		apibridge_stop(b, sb);
		/* Only a gateway that could not listen is worth another port. */
		if (!e || !strstr(e->text, "listen on") || i + 1 == TRIES)
			break;
		r = 0;
	}
	if (r < 0) {
		bridge_inputs_done(&b->in);
		return r;
	}
	b->up = true;
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", b->port);
	r = put_var(env, "PAPERCLIP_API_URL", url);
	if (r == 0)
		r = put_var(env, "PAPERCLIP_API_KEY", b->in.token);
	if (r == 0)
		r = put_var(env, "PAPERCLIP_API_BRIDGE_MODE", bridge_transport_mode(BRIDGE_HTTP2));
	if (r == 0)
		r = put_var(env, "PAPERCLIP_RUN_ID", o->run_id);
	return r < 0 ? err_set(e, ERR_NOMEM, "bridge: out of memory") : 0;
}

bool apibridge_lost(struct apibridge *b)
{
	if (!b->up || b->told)
		return false;
	bridge_client_poll(&b->client);
	b->told = b->client.lost;
	return b->told;
}

void apibridge_stop(struct apibridge *b, struct sandbox *sb)
{
	bridge_client_stop(&b->client);
	if (b->gateway && sb)
		(void)sb->ops->signal(sb, b->gateway, SIGTERM, NULL);
	b->gateway = 0;
	if (b->up)
		bridge_inputs_done(&b->in);
}
