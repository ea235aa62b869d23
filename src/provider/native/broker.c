/*
 * Policy: between clients (the user's own programs) and a guest (foreign). Clients may ask for what
 * the permit table lists, with the number of descriptors it lists. Each command gets an id of
 * launch's own; an event is believed only if it fits the state of that id, and goes only to the client
 * that asked. A guest that says anything else, or more than was asked for, is killed: there is
 * no flood that fits the table. Not done here: output, which goes straight from the command's
 * pipe to whoever gave it.
 */
#include "provider/native/broker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "wire/guest.h"

#define SEND_WAIT_MS 1000     /* a peer that reads nothing for so long is given up */
#define SHUTDOWN_WAIT_MS 1500 /* asked to end; then killed */

int64_t broker_send_deadline(void)
{
	return clock_mono_ns() + SEND_WAIT_MS * NS_PER_MS;
}

void broker_kill(struct broker *b)
{
	/* Safe because: the pidfd is pid 1's, and with pid 1 the kernel ends every process of the sandbox. */
	if (!b->killed)
		(void)syscall(SYS_pidfd_send_signal, b->l->pidfd, SIGKILL, NULL, 0);
	b->killed = true;
	b->kill_ns = INT64_MAX;
}

void broker_to_guest(struct broker *b, uint8_t type, const struct buf *p, const int *fds, size_t n)
{
	if (b->killed)
		return;
	/* Half a frame may be out: there is no way on with a guest that does not read. */
	if (p->err || chan_send(&b->l->guest, type, p->data, p->len, fds, n, broker_send_deadline(),
				NULL) < 0)
		broker_kill(b);
}

void broker_ask_end(struct broker *b)
{
	const struct buf none = BUF_INIT(1);

	if (b->asked)
		return;
	b->asked = true;
	b->kill_ns = clock_mono_ns() + SHUTDOWN_WAIT_MS * NS_PER_MS;
	broker_to_guest(b, GM_SHUTDOWN, &none, NULL, 0);
}

void broker_drop(struct broker *b, int i)
{
	chan_done(&b->clients[i].ch);
	b->clients[i] = (struct client){.ch.fd = -1};
	for (size_t j = 0; j < JOBS_MAX; j++) {
		_cleanup_buf_ struct buf p = BUF_INIT(64);
		struct job *job = &b->jobs[j];

		if (job->state == JOB_FREE || job->client != i)
			continue;
		/* Nobody would read its end or its output: what it runs is ended. */
		job->client = -1;
		(void)gm_signal_put(&p, &(struct gm_signal){.id = job->id, .signo = SIGKILL});
		broker_to_guest(b, GM_SIGNAL, &p, NULL, 0);
	}
	/* What its bridges listened on is another's to have: nobody inside is to wait there for one that has gone. */
	for (unsigned k = 0; k < b->l->sockets; k++) {
		if (b->socket_of[k] != i + 1)
			continue;
		(void)shutdown(b->l->socket[k], SHUT_RDWR);
		b->socket_of[k] = 0;
	}
	/* FR-B164: the owner's end of the socket is the life line, whatever ended the owner. */
	if (i == OWNER && !b->l->plan.keep)
		broker_kill(b);
}

void broker_to_client(struct broker *b, int i, uint8_t type, const struct buf *p)
{
	if (i < 0 || b->clients[i].ch.fd < 0)
		return;
	if (p->err || chan_send(&b->clients[i].ch, type, p->data, p->len, NULL, 0,
				broker_send_deadline(), NULL) < 0)
		broker_drop(b, i);
}

void broker_tell_ready(struct broker *b, int i)
{
	const struct cgroup *cg = &b->l->cgroup;
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	uint32_t limits = 0;

	if (cg->in_force & (1u << CG_MEMORY))
		limits |= GR_MEMORY;
	if (cg->in_force & (1u << CG_PIDS))
		limits |= GR_PIDS;
	if (cg->in_force & (1u << CG_CPU))
		limits |= GR_CPU;
	if (cg->v2)
		limits |= GR_V2;
	if (b->l->sockets)
		limits |= GR_SOCKETS;
	(void)buf_u32(&p, GUEST_PROTOCOL);
	(void)buf_u32(&p, (uint32_t)b->l->landlock);
	(void)buf_u32(&p, limits);
	/* The pidfd lets the client see for itself that the sandbox has ended. */
	if (p.err || chan_send(&b->clients[i].ch, GM_READY, p.data, p.len, &b->l->pidfd, 1,
			       broker_send_deadline(), NULL) < 0)
		broker_drop(b, i);
}

static void tell_ended(struct broker *b, int status)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);

	(void)buf_u32(&p, (uint32_t)status);
	for (int i = 0; i < CLIENTS_MAX; i++)
		broker_to_client(b, i, GM_ENDED, &p);
}

static int reap(struct broker *b)
{
	siginfo_t si = {0};

	/* The pidfd is readable only once every process of the pid namespace is gone. */
	while (waitid(P_PIDFD, (id_t)b->l->pidfd, &si, WEXITED) < 0 && errno == EINTR)
		;
	return si.si_code == CLD_EXITED ? si.si_status << 8 : si.si_status;
}

/* Until the time to kill; -1: none is set, and no clock need be asked. */
static int wait_ms(const struct broker *b)
{
	return b->kill_ns == INT64_MAX ? -1 : clock_poll_ms(b->kill_ns, clock_mono_ns());
}

/* One turn; true when the guest has ended. */
static bool turn(struct broker *b, bool *guest_open)
{
	struct pollfd p[CLIENTS_MAX + 3];
	bool ended;

	for (int i = 0; i < CLIENTS_MAX; i++)
		p[i] = (struct pollfd){.fd = b->clients[i].ch.fd, .events = POLLIN};
	p[CLIENTS_MAX] = (struct pollfd){.fd = b->l->listen_fd, .events = POLLIN};
	p[CLIENTS_MAX + 1] =
	    (struct pollfd){.fd = *guest_open ? b->l->guest.fd : -1, .events = POLLIN};
	p[CLIENTS_MAX + 2] = (struct pollfd){.fd = b->l->pidfd, .events = POLLIN};
	if (poll(p, ARRAY_LEN(p), wait_ms(b)) < 0)
		return false;
	ended = p[CLIENTS_MAX + 2].revents;
	/* Events first: the last ones of a guest that has just ended belong to somebody. */
	while (*guest_open && (p[CLIENTS_MAX + 1].revents || ended)) {
		*guest_open = broker_hear_guest(b);
		if (!*guest_open)
			broker_kill(b);
		if (!ended)
			break;
	}
	if (ended)
		return true;
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (p[i].revents && b->clients[i].ch.fd >= 0)
			broker_hear_client(b, i);
	if (p[CLIENTS_MAX].revents)
		broker_accept(b);
	if (wait_ms(b) == 0)
		broker_kill(b);
	return false;
}

int broker_run(struct launch *l)
{
	struct broker *b = calloc(1, sizeof(*b));
	bool guest_open = true;
	int status;

	if (!b)
		return -ENOMEM;
	b->l = l;
	b->next_id = 1;
	b->kill_ns = clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS;
	for (int i = 0; i < CLIENTS_MAX; i++)
		b->clients[i].ch.fd = -1;
	b->clients[OWNER].ch = l->owner;
	l->owner = (struct chan){.fd = -1};
	/*
	 * The guest has been started: its execve has happened. What the owner asks for meanwhile waits in the guest's
	 * socket; a guest that does not get ready, or is of another version, is killed.
	 */
	broker_tell_ready(b, OWNER);
	launch_settle(l);
	while (!turn(b, &guest_open))
		;
	status = reap(b);
	tell_ended(b, status);
	/* The end of the process gives back the rest: to unmap it piece by piece keeps the owner waiting. */
	return status;
}
