#include "engine/netproxy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/gateway.h"
#include "policy/netrule.h"
#include "wire/forward.h"

static int join(char *const *words, struct buf *b)
{
	for (size_t i = 0; i < strv_len(words); i++)
		(void)buf_put(b, words[i], strlen(words[i]) + 1);
	return b->err;
}

static int start_helper(struct netproxy *n, const struct netproxy_opts *o, int channel,
			struct err *e)
{
	_cleanup_buf_ struct buf rules = BUF_INIT(CONFIG_MAX), pins = BUF_INIT(CONFIG_MAX);
	struct proxy_setup s = {
	    .without_landlock = o->q->without & WITHOUT_LANDLOCK,
	    .without_seccomp = o->q->without & WITHOUT_SECCOMP,
	    .run_id = {o->run_id, strlen(o->run_id)},
	};

	if (join(o->q->net_allow, &rules) < 0 || join(o->q->net_pins, &pins) < 0)
		return err_set(e, ERR_LIMIT, "network rules: longer than %d bytes", CONFIG_MAX);
	s.rules = (struct view){rules.data, rules.len};
	s.pins = (struct view){pins.data, pins.len};
	return proxy_client_start(&n->client, &s, channel, o->audit, e);
}

static bool has(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return true;
	return false;
}

/* Programs disagree about the names; node needs to be told to look at them at all. */
static int tell(struct netproxy *n, char ***env)
{
	static const char *const urls[] = {"http_proxy", "https_proxy", "all_proxy",
					   "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"};
	static const char *const none[] = {"no_proxy", "NO_PROXY"};
	char url[48];
	int r = 0;

	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", n->port);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(urls); i++)
		if (!has(*env, urls[i]))
			r = gateway_setvar(env, urls[i], url);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(none); i++)
		if (!has(*env, none[i]))
			r = gateway_setvar(env, none[i], "localhost,127.0.0.1,::1");
	if (r == 0 && !has(*env, "NODE_USE_ENV_PROXY"))
		r = gateway_setvar(env, "NODE_USE_ENV_PROXY", "1");
	return r;
}

int netproxy_start(struct netproxy *n, struct sandbox *sb, const struct netproxy_opts *o,
		   char ***env, struct err *e)
{
	_cleanup_fd_ int ours = -1, theirs = -1, errors = -1, errors_in = -1;
	int pair[2], r;

	*n = (struct netproxy){0};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "channel of the network proxy");
	ours = pair[0];
	theirs = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, errno, "channel of the network proxy");
	errors = pair[0];
	errors_in = pair[1];
	r = gateway_port(&n->port, e);
	if (r == 0)
		r = start_helper(n, o, ours, e);
	cleanup_fd(&ours);
	/* Safe because: what travels into the sandbox is its own end of a socket pair, and a pipe to write into. */
	if (r == 0)
		r = gateway_start(sb,
				  &(struct gateway_spec){.mode = GATEWAY_MODE_FORWARD,
							 .port = n->port,
							 .channel = theirs,
							 .errors = errors_in},
				  &n->gateway, e);
	cleanup_fd(&theirs);
	cleanup_fd(&errors_in);
	if (r < 0)
		return r;
	r = proxy_client_ready(&n->client, e);
	if (r < 0) {
		gateway_errors(errors, e);
		return r;
	}
	n->up = true;
	r = tell(n, env);
	return r < 0 ? err_set(e, ERR_NOMEM, "network proxy: out of memory") : 0;
}

bool netproxy_lost(struct netproxy *n)
{
	if (!n->up || n->told)
		return false;
	proxy_client_poll(&n->client);
	n->told = n->client.lost;
	return n->told;
}

void netproxy_stop(struct netproxy *n, struct sandbox *sb)
{
	proxy_client_stop(&n->client);
	if (n->gateway && sb)
		(void)sb->ops->signal(sb, n->gateway, SIGTERM, NULL);
	n->gateway = 0;
}

static int warn(char ***v, const char *option, const char *word, const struct netaddr *a)
{
	enum netaddr_class class = netaddr_classify(a);
	char text[512];

	if (class == NETADDR_PUBLIC)
		return 0;
	(void)snprintf(
	    text, sizeof(text),
	    "NETWORK: %s%.200s lets the command reach an address that is not public (%s)", option,
	    word, netaddr_class_name(class));
	return strv_add(v, text);
}

int netproxy_warnings(const struct request *q, char ***v)
{
	struct net_rule rule;
	struct net_pin pin;
	int r = 0;

	for (size_t i = 0; r == 0 && i < strv_len(q->net_allow); i++)
		if (net_rule_parse(q->net_allow[i], &rule, NULL) == 0 && rule.to.literal)
			r = warn(v, "--net allow=", q->net_allow[i], &rule.to.addr);
	for (size_t i = 0; r == 0 && i < strv_len(q->net_pins); i++)
		if (net_pin_parse(q->net_pins[i], &pin, NULL) == 0)
			r = warn(v, "--resolve ", q->net_pins[i], &pin.addr);
	return r;
}

char *netproxy_flag(const char *place, const char *rule)
{
	const char *host_end = place[0] == '[' ? strchr(place, ']') : place;
	char *flag = NULL;
	bool port = host_end && strchr(host_end, ':');

	if (strcmp(rule, "net.host") == 0 && asprintf(&flag, "--net allow=%s", place) < 0)
		return NULL;
	if (strcmp(rule, "net.address") == 0 &&
	    asprintf(&flag, "--resolve %s%s:ADDRESS", place, port ? "" : ":443") < 0)
		return NULL;
	return flag;
}
