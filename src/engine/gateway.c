#include "engine/gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/self.h"
#include "policy/envvars.h"
#include "wire/guest.h"

int gateway_port(uint16_t *ret, struct err *e)
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

int gateway_setvar(char ***env, const char *name, const char *value)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ENV_VALUE_MAX);
	int r;

	(void)buf_putf(&b, "%s=%s", name, value);
	r = b.err ? b.err : envvars_set(env, buf_text(&b));
	if (b.data)
		sodium_memzero(b.data, b.len);
	return r;
}

int gateway_start(struct sandbox *sb, const struct gateway_spec *s, uint32_t *ret_id, struct err *e)
{
	_cleanup_free_ char *host_path = NULL;
	_cleanup_strv_ char **env = NULL, **argv = NULL;
	struct exec_spec x = {.in = s->channel, .out = s->channel, .err = s->errors, .cwd = "/"};
	char port[8];
	int r = 0;

	if (!sb->ops->isolates && !sb->gateway) {
		r = self_helper("airlock-gateway", &host_path, e);
		if (r < 0)
			return r;
	}
	(void)snprintf(port, sizeof(port), "%u", s->port);
	if (!sb->gateway)
		r = strv_add(&argv, host_path ? host_path : GATEWAY_PATH);
	for (size_t i = 0; sb->gateway && sb->gateway[i]; i++)
		if (strv_add(&argv, sb->gateway[i]) < 0)
			return err_set(e, ERR_NOMEM, "gateway: out of memory");
	if (r == 0)
		r = gateway_setvar(&env, "PAPERCLIP_API_BRIDGE_MODE", s->mode);
	if (r == 0)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_HOST", "127.0.0.1");
	if (r == 0)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_PORT", port);
	if (r == 0 && s->control)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_CONTROL", "1");
	if (r == 0 && s->queue_dir)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_QUEUE_DIR", s->queue_dir);
	if (r == 0 && s->token)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_TOKEN", s->token);
	if (r == 0 && s->nonce)
		r = gateway_setvar(&env, "PAPERCLIP_BRIDGE_NONCE", s->nonce);
	if (r < 0)
		return err_set(e, ERR_NOMEM, "gateway: out of memory");
	x.argv = argv;
	x.env = env;
	return sb->ops->exec(sb, &x, ret_id, e);
}

void gateway_errors(int fd, struct err *e)
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
