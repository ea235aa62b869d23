/*
 * The life of airlock-proxy: take the set-up from the parent, start the resolver, confine, serve, end.
 *
 * Policy: the process holds the only way from a sandbox to the network. It is confined before it reads the first byte
 * from there: no file can be opened, no program started, no new socket but TCP streams, and TCP only to the ports of the
 * allow-list. From inside come single bytes of a channel that has no room for descriptors, and what clients send on socket
 * pairs that were made here. It holds no credential.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "bridge/ownaddr.h"
#include "bridge/proxy.h"
#include "wire/forward.h"
#include "os/confine.h"
#include "os/seccomp.h"

#define DATA_MAX (UINT64_C(96) << 20)
#define NOFILE (3 * PROXY_CONNS_MAX)
#define SEND_MS 1000

static int say(struct proxy *p, uint8_t type, const struct buf *b)
{
	return chan_send(&p->ctl, type, b ? b->data : NULL, b ? b->len : 0, NULL, 0,
			 clock_mono_ns() + SEND_MS * NS_PER_MS, NULL);
}

void proxy_tell_refused(struct proxy *p, const char *place, const char *rule)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	for (size_t i = 0; i < p->refused_len; i++)
		if (strcmp(p->refused[i], place) == 0)
			return;
	if (p->refused_len == PROXY_REFUSED_MAX)
		return;
	(void)snprintf(p->refused[p->refused_len++], NET_TARGET_TEXT, "%s", place);
	(void)buf_str(&b, place);
	(void)buf_str(&b, rule);
	(void)say(p, PF_REFUSED, &b);
}

static void lose(struct proxy *p, const char *why)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	if (p->lost)
		return;
	p->lost = true;
	loop_del(&p->loop, &p->channel_watch);
	loop_del(&p->loop, &p->resolver_watch);
	proxy_conns_end(p);
	cleanup_fd(&p->channel);
	(void)buf_str(&b, why);
	(void)say(p, PF_LOST, &b);
}

/* --- the channel -------------------------------------------------------------------------- */

/* Safe because: what travels into the sandbox is one end of a new pair, whose other end is judged here. */
static int hand_over(int channel, int fd)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	char word = fd >= 0 ? FORWARD_YES : FORWARD_NO;
	struct iovec iov = {&word, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (fd >= 0) {
		m.msg_control = control.space;
		m.msg_controllen = sizeof(control.space);
		control.h.cmsg_level = SOL_SOCKET;
		control.h.cmsg_type = SCM_RIGHTS;
		control.h.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.h), &fd, sizeof(int));
	}
	return sendmsg(channel, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -1;
}

static void new_client(struct proxy *p)
{
	int sv[2] = {-1, -1};
	bool full = p->conns_len >= PROXY_CONNS_MAX;

	if (!full && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		sv[0] = sv[1] = -1;
	/* One that does not read its answers is no client of ours. */
	if (hand_over(p->channel, sv[1]) < 0) {
		cleanup_fd(&sv[0]);
		lose(p, "the port inside does not take its answers");
	} else if (sv[0] >= 0) {
		(void)proxy_conn_new(p, sv[0]);
	}
	cleanup_fd(&sv[1]);
}

static void on_channel(struct loop_watch *w, uint32_t events)
{
	struct proxy *p =
	    (struct proxy *)(void *)((char *)w - offsetof(struct proxy, channel_watch));
	char word = 0;
	/* recv has no room for descriptors: whatever is attached is dropped by the kernel. */
	ssize_t n = recv(p->channel, &word, 1, MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		lose(p, "the port inside is gone");
	else if (word == FORWARD_READY)
		(void)say(p, PF_READY, NULL);
	else if (word == FORWARD_CONNECT)
		new_client(p);
	else
		lose(p, "the port inside sent something else");
}

static void on_resolver(struct loop_watch *w, uint32_t events)
{
	struct proxy *p =
	    (struct proxy *)(void *)((char *)w - offsetof(struct proxy, resolver_watch));
	struct resolver_answer a;
	int r = resolver_take(p->resolver, &a);

	(void)events;
	if (r == 0)
		proxy_connect_answer(p, &a);
	else if (r != -EAGAIN)
		lose(p, "the resolver ended");
}

/* --- the parent --------------------------------------------------------------------------- */

static void finish(struct proxy *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(256);

	p->done = p->loop.stop = true;
	proxy_conns_end(p);
	audit_close(&p->audit);
	p->counts.audit_lost = p->audit.lost;
	(void)proxy_put_counts(&b, &p->counts);
	(void)say(p, PF_DONE, &b);
}

static void on_parent(struct loop_watch *w, uint32_t events)
{
	struct proxy *p = (struct proxy *)(void *)((char *)w - offsetof(struct proxy, ctl_watch));
	struct frame f;
	int r;

	(void)events;
	while (!p->done && (r = chan_recv(&p->ctl, 0, &f, NULL, NULL)) != -EAGAIN) {
		if (r <= 0)
			p->done = p->loop.stop = true;
		else if (f.type == PF_STOP)
			finish(p);
	}
}

static void on_turn(void *arg, int64_t now)
{
	struct proxy *p = arg;

	p->loop.wake_ns = proxy_conns_tick(p, now);
	if (now >= p->audit_by_ns) {
		p->audit_by_ns = audit_flush(&p->audit) ? now + NS_PER_S : INT64_MAX;
	}
	if (p->audit_by_ns < p->loop.wake_ns)
		p->loop.wake_ns = p->audit_by_ns;
}

/* --- start -------------------------------------------------------------------------------- */

static int take_rules(struct proxy *p, struct view words, struct err *e)
{
	int r = 0;

	p->rules = calloc(PROXY_RULES_MAX, sizeof(*p->rules));
	if (!p->rules)
		return err_set(e, ERR_NOMEM, "network rules: out of memory");
	for (size_t at = 0; r == 0 && at < words.n; at += strlen(words.p + at) + 1) {
		if (p->rules_len == PROXY_RULES_MAX)
			return err_set(e, ERR_LIMIT, "network rules: more than %d",
				       PROXY_RULES_MAX);
		r = net_rule_parse(words.p + at, &p->rules[p->rules_len++], e);
		if (r == 0 && strv_add(&p->rule_words, words.p + at) < 0)
			r = err_set(e, ERR_NOMEM, "network rules: out of memory");
	}
	return r;
}

static int take_pins(struct proxy *p, struct view words, struct err *e)
{
	int r = 0;

	p->pins = calloc(PROXY_RULES_MAX, sizeof(*p->pins));
	if (!p->pins)
		return err_set(e, ERR_NOMEM, "network pins: out of memory");
	for (size_t at = 0; r == 0 && at < words.n; at += strlen(words.p + at) + 1) {
		if (p->pins_len == PROXY_RULES_MAX)
			return err_set(e, ERR_LIMIT, "--resolve: more than %d", PROXY_RULES_MAX);
		r = net_pin_parse(words.p + at, &p->pins[p->pins_len++], e);
	}
	return r;
}

static int confine(const struct proxy *p, const struct proxy_setup *s, struct err *e)
{
	uint16_t ports[PROXY_RULES_MAX];
	struct confine_opts o = {
	    .data_max = DATA_MAX,
	    .nofile_max = NOFILE,
	    .connect_ports = ports,
	    .without = CONFINE_NO_SECCOMP | (s->without_landlock ? CONFINE_NO_LANDLOCK : 0),
	};
	int r;

	for (size_t i = 0; i < p->rules_len; i++)
		ports[o.connect_ports_len++] = p->rules[i].to.port;
	r = confine_self(&o, e);
	/* Safe because: the filters only take system calls away and cannot be removed. */
	if (r == 0 && !s->without_seccomp) {
		r = seccomp_install_proxy();
		if (r < 0)
			r = err_sys(e, -r,
				    "seccomp: load the proxy's list (CONFIG_SECCOMP_FILTER)");
	}
	return r;
}

static int set_up(struct proxy *p, const struct frame *f, int fds[FRAME_FDS_MAX], struct err *e)
{
	struct proxy_setup s;
	int r;

	p->channel = TAKE_FD(fds[0]);
	r = audit_open(&p->audit, TAKE_FD(fds[1]), e);
	if (r < 0)
		return r;
	if (f->type != PF_SETUP || proxy_get_setup(f->payload, &s) < 0 || p->channel < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-proxy: not a set-up of this version");
	(void)snprintf(p->run_id, sizeof(p->run_id), "%.*s", (int)s.run_id.n,
		       s.run_id.n ? s.run_id.p : "");
	r = take_rules(p, s.rules, e);
	if (r == 0)
		r = take_pins(p, s.pins, e);
	if (r == 0)
		r = resolver_start(s.without_landlock, s.without_seccomp, &p->resolver, e);
	if (r < 0)
		return r;
	/* A public address may be this machine: what listens here is as private as on loopback. */
	p->own = ownaddr_open();
	if (p->own < 0)
		return err_sys(e, -p->own, "network proxy: ask for own addresses (netlink)");
	return confine(p, &s, e);
}

static int start(struct proxy *p, struct err *e)
{
	int fds[FRAME_FDS_MAX] = {-1, -1, -1, -1};
	struct frame f;
	int r = loop_init(&p->loop, e);

	if (r < 0)
		return r;
	r = chan_recv(&p->ctl, INT64_MAX, &f, fds, e);
	if (r == 0)
		return err_set(e, ERR_CANCELLED, "airlock went away");
	if (r > 0)
		r = set_up(p, &f, fds, e);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		cleanup_fd(&fds[i]);
	if (r == 0)
		r = loop_add(&p->loop, &p->ctl_watch, p->ctl.fd, EPOLLIN, on_parent);
	if (r == 0)
		r = loop_add(&p->loop, &p->resolver_watch, p->resolver, EPOLLIN, on_resolver);
	if (r == 0)
		r = say(p, PF_CONFINED, NULL);
	if (r == 0)
		r = loop_add(&p->loop, &p->channel_watch, p->channel, EPOLLIN, on_channel);
	return r;
}

static void clear(struct proxy *p)
{
	proxy_conns_end(p);
	free(p->rules);
	free(p->pins);
	strv_free(p->rule_words);
	cleanup_fd(&p->channel);
	cleanup_fd(&p->resolver);
	cleanup_fd(&p->own);
	audit_close(&p->audit);
	chan_done(&p->ctl);
	loop_done(&p->loop);
}

int proxy_serve(int fd)
{
	static struct proxy p = {.channel = -1,
				 .resolver = -1,
				 .own = -1,
				 .audit = {.fd = -1},
				 .audit_by_ns = INT64_MAX,
				 .due_ns = INT64_MAX,
				 .ctl_watch.fd = -1,
				 .channel_watch.fd = -1,
				 .resolver_watch.fd = -1};
	struct err e = ERR_INIT;
	int r;

	chan_init(&p.ctl, fd, true);
	r = start(&p, &e);
	/* From here on no frame of the parent carries a descriptor. */
	p.ctl.accept_fds = false;
	if (r == 0)
		r = loop_run(&p.loop, on_turn, &p, &e);
	if (r < 0 && !p.done) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);

		(void)buf_u32(&b, (uint32_t)e.code);
		(void)buf_str(&b, e.text);
		(void)say(&p, PF_ERROR, &b);
	}
	clear(&p);
	return r;
}
