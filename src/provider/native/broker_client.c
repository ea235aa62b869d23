/*
 * Policy: a client may ask for what the permit table lists, with the number of descriptors it lists, and nothing
 * else; each command gets an id of launch's own. A client that speaks nonsense is dropped. Not done here: judging
 * what is run, which is the user's business.
 */
#include "provider/native/broker.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/guest.h"

static struct job *job_of(struct broker *b, int client, uint32_t client_id)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (b->jobs[i].state != JOB_FREE && b->jobs[i].client == client &&
		    b->jobs[i].client_id == client_id)
			return &b->jobs[i];
	return NULL;
}

static struct job *new_job(struct broker *b, int client, uint32_t client_id, bool pack)
{
	size_t execs = 0, packs = 0;
	struct job *found = NULL;

	for (size_t i = 0; i < JOBS_MAX; i++) {
		if (b->jobs[i].state == JOB_FREE)
			found = &b->jobs[i];
		else if (b->jobs[i].pack)
			packs++;
		else
			execs++;
	}
	if (!found || (pack ? packs >= 1 : execs >= EXECS_MAX))
		return NULL;
	*found = (struct job){JOB_ASKED, pack, client, client_id, b->next_id++};
	return found;
}

static void refuse(struct broker *b, int client, uint32_t id, bool pack, int error)
{
	_cleanup_buf_ struct buf p = BUF_INIT(128);
	struct gm_failed f = {.id = id, .error = (uint32_t)error, .step = "limit"};

	if (pack)
		(void)gm_packed_put(&p, &(struct gm_packed){.id = id, .error = (uint32_t)error});
	else
		(void)gm_failed_put(&p, &f);
	broker_to_client(b, client, pack ? GM_PACKED : GM_FAILED, &p);
}

/* All handlers: 0, or -EPROTO when the client speaks nonsense and is dropped. */
static int on_exec(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(FRAME_MAX);
	struct gm_exec x;
	struct job *job;
	int r = gm_exec_get(v, &x);

	if (r == 0 && job_of(b, i, x.id)) {
		refuse(b, i, x.id, false, EEXIST);
	} else if (r == 0 && !(job = new_job(b, i, x.id, false))) {
		refuse(b, i, x.id, false, EAGAIN);
	} else if (r == 0) {
		x.id = job->id;
		(void)gm_exec_put(&p, &x);
		broker_to_guest(b, GM_EXEC, &p, fds, 3);
	}
	gm_exec_done(&x);
	return r == -EPROTO ? r : 0;
}

static int on_pack(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct cursor c;
	struct job *job;
	uint32_t id;

	cursor_init(&c, v.p, v.n);
	id = cursor_u32(&c);
	if (!cursor_end(&c))
		return -EPROTO;
	job = job_of(b, i, id) ? NULL : new_job(b, i, id, true);
	if (!job) {
		refuse(b, i, id, true, EBUSY);
		return 0;
	}
	(void)buf_u32(&p, job->id);
	broker_to_guest(b, GM_PACK, &p, fds, 1);
	return 0;
}

static int on_signal(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct gm_signal m;
	struct job *job;

	(void)fds;
	if (gm_signal_get(v, &m) < 0)
		return -EPROTO;
	job = job_of(b, i, m.id);
	if (!job)
		return 0;
	m.id = job->id;
	(void)gm_signal_put(&p, &m);
	broker_to_guest(b, GM_SIGNAL, &p, NULL, 0);
	return 0;
}

static int on_winsize(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct gm_winsize m;
	struct job *job;

	(void)fds;
	if (gm_winsize_get(v, &m) < 0)
		return -EPROTO;
	job = job_of(b, i, m.id);
	if (!job || job->pack)
		return 0;
	m.id = job->id;
	(void)gm_winsize_put(&p, &m);
	broker_to_guest(b, GM_WINSIZE, &p, NULL, 0);
	return 0;
}

static int on_shutdown(struct broker *b, int i, struct view v, const int *fds)
{
	(void)i;
	(void)fds;
	broker_ask_end(b);
	return v.n ? -EPROTO : 0;
}

static int on_ping(struct broker *b, int i, struct view v, const int *fds)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct client *cl = &b->clients[i];
	struct cursor c;
	uint64_t nonce;

	(void)fds;
	cursor_init(&c, v.p, v.n);
	nonce = cursor_u64(&c);
	if (!cursor_end(&c) || cl->ping)
		return -EPROTO;
	cl->ping = true;
	cl->nonce = nonce;
	(void)buf_u64(&p, (uint64_t)i);
	broker_to_guest(b, GM_PING, &p, NULL, 0);
	return 0;
}

/*
 * Safe because: the socket was made before the sandbox's first foreign instruction, and goes to the sandbox's owner, one client at a time.
 */
static int on_socket(struct broker *b, int i, struct view v, const int *fds)
{
	unsigned k = 0;

	(void)fds;
	while (k < b->l->sockets && b->socket_of[k])
		k++;
	if (v.n)
		return -EPROTO;
	if (chan_send(&b->clients[i].ch, GM_SOCKET_IS, NULL, 0,
		      &b->l->socket[k < b->l->sockets ? k : 0], k < b->l->sockets ? 1 : 0,
		      broker_send_deadline(), NULL) < 0)
		return -EPROTO;
	if (k < b->l->sockets)
		b->socket_of[k] = i + 1;
	return 0;
}

static const struct permit {
	uint8_t type, fds;
	int (*run)(struct broker *b, int client, struct view v, const int *fds);
} permits[] = {
    {GM_EXEC, 3, on_exec},     {GM_SIGNAL, 0, on_signal},     {GM_WINSIZE, 0, on_winsize},
    {GM_PACK, 1, on_pack},     {GM_SHUTDOWN, 0, on_shutdown}, {GM_PING, 0, on_ping},
    {GM_SOCKET, 0, on_socket},
};

static int dispatch(struct broker *b, int i, const struct frame *f, int fds[FRAME_FDS_MAX])
{
	int r = -EPROTO;

	for (size_t k = 0; k < ARRAY_LEN(permits); k++)
		if (permits[k].type == f->type && permits[k].fds == f->nfds)
			r = permits[k].run(b, i, f->payload, fds);
	for (size_t k = 0; k < FRAME_FDS_MAX; k++)
		cleanup_fd(&fds[k]);
	return r;
}

void broker_hear_client(struct broker *b, int i)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;

	for (int n = 0; n < FRAMES_A_TURN && b->clients[i].ch.fd >= 0; n++) {
		int r = chan_recv(&b->clients[i].ch, 0, &f, fds, NULL);

		if (r == -EAGAIN)
			return;
		if (r <= 0 || dispatch(b, i, &f, fds) < 0) {
			broker_drop(b, i);
			return;
		}
	}
}

/* Safe because: the socket lies in a directory of mode 0700, and the peer must be the same user. */
void broker_accept(struct broker *b)
{
	int fd = accept4(b->l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (fd < 0)
		return;
	for (int i = OWNER + 1; i < CLIENTS_MAX; i++) {
		if (b->clients[i].ch.fd >= 0)
			continue;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || cred.uid != geteuid())
			break;
		chan_init(&b->clients[i].ch, fd, true);
		broker_tell_ready(b, i);
		return;
	}
	cleanup_fd(&fd);
}
