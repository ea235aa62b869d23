/*
 * The way of a bridge to a machine without a guest: ssh's own remote forwarding, over the connection that is there.
 *
 * Policy: one port of that machine's loopback, which its server chooses, leads to one of ours, where airlock-bridge listens; nothing else
 * is opened, and it is closed at the end. Safe because: who connects, there or here, has to show the run's token, as to a gateway.
 * Not done: files (queue) where the server forwards nothing; that is told.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "os/listen.h"
#include "provider/ssh/plain_internal.h"

#define FORWARD_MS 15000

/* Asks the shared connection. The user's configuration has no say in it, and could ask for more. 0: done. */
static int control(const struct plain *p, const char *what, uint16_t port, struct buf *out,
		   char *tail)
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
					    "-S",  p->control, "-O",	    what,
					    "-R",  spec,       "--",	    p->target.host,
					    NULL};

		o.argv = argv;
		o.envp = (const char *const *)env;
		o.timeout_ms = FORWARD_MS;
		o.session = true;
		o.out = out;
		(void)process_run(&o, &status, tail, &e);
	}
	return status == 0 ? 0 : -EIO;
}

int plain_socket(struct sandbox *sb)
{
	const struct plain *p = (struct plain *)sb;
	int fd = p->control && p->ports < PLAIN_PORTS ? listen_socket() : -1;

	return fd < 0 ? -1 : fd;
}

int plain_publish(struct sandbox *sb, uint16_t port, uint16_t *ret_port, struct err *e)
{
	struct plain *p = (struct plain *)sb;
	char tail[PROCESS_TAIL_MAX + 1] = "";
	_cleanup_buf_ struct buf b = BUF_INIT(4096), out = BUF_INIT(256);
	char digits[8] = "";
	uint64_t n;

	if (p->ports == PLAIN_PORTS)
		return err_set(e, ERR_LIMIT, "%s: %d bridges are there already", p->target.label,
			       PLAIN_PORTS);
	if (control(p, "forward", port, &out, tail) == 0) {
		p->port[p->ports++] = port;
		/* ssh says which port the server took. */
		(void)snprintf(digits, sizeof(digits), "%.*s",
			       (int)strspn(buf_text(&out), "0123456789"), buf_text(&out));
		if (str_to_u64(digits, UINT16_MAX, &n) == 0 && n) {
			*ret_port = (uint16_t)n;
			return 0;
		}
	}
	(void)str_printable(&b, tail, strnlen(tail, 200));
	return err_set(e, ERR_UNAVAILABLE,
		       "%s: its ssh server opens no port for the bridge: forwarding is off there "
		       "(AllowTcpForwarding)%s%s",
		       p->target.label, b.len ? ": " : "", buf_text(&b));
}

void plain_unpublish(struct plain *p)
{
	char tail[PROCESS_TAIL_MAX + 1];

	while (p->ports)
		(void)control(p, "cancel", p->port[--p->ports], NULL, tail);
}
