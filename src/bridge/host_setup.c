/*
 * What airlock-bridge is told by its parent, and its confinement. Policy: host.c. The first foreign byte is read after host_set_up.
 */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "bridge/bridge_proto.h"
#include "bridge/host_internal.h"
#include "os/confine.h"
#include "os/gate.h"
#include "os/seccomp.h"

#define DATA_MAX       \
	(UINT64_C(112) \
	 << 20) /* private memory: 64 MiB at the limits, and what malloc cannot give back */
#define NOFILE (3 * BRIDGE_STREAMS_MAX)

static int make_guard(struct host *h, const struct bridge_setup *s, const struct origin *o,
		      struct err *e)
{
	_cleanup_free_ char *name =
	    strndup(s->policy_name.n ? s->policy_name.p : "", s->policy_name.n);
	struct guard_config c = {.origin = *o,
				 .token = s->token,
				 .credential = s->credential,
				 .run_id = s->run_id,
				 .agent_id = s->agent_id,
				 .company_id = s->company_id,
				 .task_id = s->task_id};
	int r;

	if (!name)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	r = s->policy_text.n
		? bridge_policy_parse(name, s->policy_text.p, s->policy_text.n, &h->policy, e)
		: bridge_policy_builtin(name, &h->policy, e);
	if (r == 0 && s->credential_header.n) {
		h->credential_header = strndup(s->credential_header.p, s->credential_header.n);
		r = h->credential_header
			? bridge_policy_credential(h->policy, h->credential_header, e)
			: err_set(e, ERR_NOMEM, "bridge: out of memory");
	}
	if (r < 0)
		return r;
	c.policy = h->policy;
	h->streams_max = h->policy->streams_max;
	return guard_new(&c, &h->bridge.guard, e);
}

static int confine(struct host *h, struct err *e)
{
	uint16_t port = upstream_port(h->bridge.upstream);
	const struct confine_path dir = {.fd = h->queue_root, .access = CONFINE_WRITE};
	struct confine_opts o = {
	    .paths = &dir,
	    .paths_len = h->queue ? 1 : 0,
	    .data_max = DATA_MAX,
	    .nofile_max = NOFILE + (h->listener < 0 ? 0 : GATE_CONNS_MAX),
	    .connect_ports = &port,
	    .connect_ports_len = port ? 1 : 0,
	    .without = CONFINE_NO_SECCOMP | (h->without_landlock ? CONFINE_NO_LANDLOCK : 0),
	};
	int r = confine_self(&o, e);

	/* Safe because: the filters only take system calls away and cannot be removed. */
	if (r == 0 && !h->without_seccomp) {
		r = seccomp_install_bridge(port != 0, h->queue		? SECCOMP_BRIDGE_QUEUE
						      : h->listener < 0 ? SECCOMP_BRIDGE_STREAM
									: SECCOMP_BRIDGE_LISTENER);
		if (r < 0)
			r = err_sys(e, -r,
				    "seccomp: load the bridge's list (CONFIG_SECCOMP_FILTER)");
	}
	return r;
}

/* Memory of the parent's that the next process of this run gets as well (bridge/shared.h). */
static int take_shared(struct host *h, int fd, struct err *e)
{
	struct stat st;
	void *p;

	if (fd < 0) {
		h->shared = h->own = calloc(1, sizeof(*h->own));
		if (!h->own)
			return err_set(e, ERR_NOMEM, "bridge: out of memory");
	} else {
		if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(*h->shared))
			return err_set(e, ERR_PROTOCOL, "airlock-bridge: too little memory shared");
		p = mmap(NULL, sizeof(*h->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			return err_sys(e, errno, "airlock-bridge: map the shared memory");
		h->shared = p;
	}
	h->bridge.counts = &h->shared->counts;
	return 0;
}

static int next_fd(int fds[FRAME_FDS_MAX], size_t *k)
{
	int fd = fds[*k];

	fds[(*k)++] = -1;
	return fd;
}

static int take_fds(struct host *h, const struct bridge_setup *s, int fds[FRAME_FDS_MAX],
		    int *ret_dir, struct err *e)
{
	_cleanup_fd_ int audit = -1, shared = -1, board = -1;
	size_t k = 0;
	int r;

	if (s->has_channel) {
		h->in = next_fd(fds, &k);
		h->out = next_fd(fds, &k);
	}
	if (s->has_dir)
		*ret_dir = next_fd(fds, &k);
	if (s->has_audit)
		audit = next_fd(fds, &k);
	if (s->has_shared)
		shared = next_fd(fds, &k);
	if (s->has_board)
		board = next_fd(fds, &k);
	if (s->has_listener)
		h->listener = next_fd(fds, &k);
	pace_init(&h->bridge.pace, board, s->run_id);
	if ((s->has_channel && (h->in < 0 || h->out < 0)) || (s->has_dir && *ret_dir < 0) ||
	    (s->transport == BRIDGE_DIRECT  ? h->listener < 0
	     : s->transport == BRIDGE_QUEUE ? !s->has_dir
					    : !s->has_channel))
		return err_set(e, ERR_PROTOCOL, "airlock-bridge: a descriptor is missing");
	r = take_shared(h, shared, e);
	if (r == 0)
		r = audit_open_in(&h->audit, TAKE_FD(audit), shared < 0 ? NULL : &h->shared->audit,
				  e);
	return r;
}

/* In a process that is to have neither the credential nor what others share with us. */
static void forget(void *arg)
{
	struct host *h = arg;

	chan_forget(&h->ctl);
	pace_forget(&h->bridge.pace);
	if (!h->own)
		(void)munmap(h->shared, sizeof(*h->shared));
}

int host_set_up(struct host *h, const struct frame *f, int fds[FRAME_FDS_MAX], struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char nonce[READY_NONCE_LEN + 1] = "";
	_cleanup_fd_ int dir = -1;
	struct bridge_setup s;
	struct origin o;
	int r;

	if (f->type != BF_SETUP || bridge_get_setup(f->payload, &s) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-bridge: not a set-up of this version");
	r = take_fds(h, &s, fds, &dir, e);
	if (r < 0)
		return r;
	h->without_landlock = s.without_landlock;
	h->without_seccomp = s.without_seccomp;
	if (s.transport == BRIDGE_DIRECT)
		r = lastword_start(&h->last, forget, h,
				   (s.without_landlock ? CONFINE_NO_LANDLOCK : 0) |
				       (s.without_seccomp ? CONFINE_NO_SECCOMP : 0),
				   e);
	if (r < 0)
		return r;
	text = strndup(s.upstream.n ? s.upstream.p : "", s.upstream.n);
	if (!text)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	r = origin_parse(text, &o, e);
	if (r == 0)
		r = make_guard(h, &s, &o, e);
	if (r == 0)
		r = upstream_new(&h->loop, &o, s.ca, &h->bridge.upstream, e);
	if (r < 0)
		return r;
	if (s.nonce.n == READY_NONCE_LEN)
		memcpy(nonce, s.nonce.p, READY_NONCE_LEN);
	(void)snprintf(h->run_id, sizeof(h->run_id), "%.*s", (int)s.run_id.n,
		       s.run_id.n ? s.run_id.p : "");
	(void)snprintf(h->name, sizeof(h->name), "%.*s", s.name.n ? (int)s.name.n : 3,
		       s.name.n ? s.name.p : "api");
	ready_init(&h->ready, nonce);
	h->ready.alone = s.transport == BRIDGE_QUEUE;
	h->bridge.transport = bridge_transport_name(s.transport);
	if (s.transport == BRIDGE_QUEUE) {
		h->queue_root = dir;
		r = queueserver_new(&h->bridge, TAKE_FD(dir), h->shared, &h->queue, e);
	}
	return r < 0 ? r : confine(h, e);
}
