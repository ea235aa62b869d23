#include "bridge/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/pace.h"
#include "bridge/policy_load.h"
#include "os/listen.h"
#include "policy/bridge_policy.h"

#define LINK_GAP_MS 2000 /* between two polls; they come a few times a second */

static struct view view_of(const char *s)
{
	return s ? (struct view){s, strlen(s)} : (struct view){0};
}

static void note(struct bridge_link *l, bool bad, const char *text)
{
	if (l->o.note)
		l->o.note(l->o.arg, bad, text);
}

/* One helper. ------------------------------------------------------------------------------ */

/* A new channel and a helper on its one end; the other end goes to the gateway when the helper is confined. */
static int spawn(struct bridge_link *l, struct err *e)
{
	const struct bridge_inputs *in = l->o.in;
	const struct bridge_setup s = {
	    .transport = (uint8_t)l->o.transport,
	    .without_landlock = l->o.without_landlock,
	    .without_seccomp = l->o.without_seccomp,
	    .upstream = view_of(in->upstream),
	    .token = view_of(in->token),
	    .nonce = view_of(in->nonce),
	    .credential = view_of(in->credential),
	    .run_id = view_of(l->ids[0]),
	    .agent_id = view_of(l->ids[1]),
	    .company_id = view_of(l->ids[2]),
	    .task_id = view_of(l->ids[3]),
	    .policy_name = view_of(in->policy_name),
	    .policy_text = {in->policy_text, in->policy_len},
	    .ca = {in->ca, in->ca_len},
	    .name = l->o.name,
	    .credential_header = l->o.credential_header,
	};
	_cleanup_fd_ int ours = -1, board = pace_board_open();
	struct bridge_fds fds = {.in = -1,
				 .out = -1,
				 .dir = l->dir,
				 .audit = l->audit,
				 .shared = l->memory,
				 .board = board,
				 .listener = l->listener};
	int pair[2];

	cleanup_fd(&l->channel);
	if (l->listener < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "bridge channel");
	if (l->listener < 0) {
		fds.in = fds.out = ours = pair[0];
		l->channel = pair[1];
	}
	l->state = LINK_STARTING;
	l->due_ns = clock_mono_ns() + LINK_START_MS * NS_PER_MS;
	return bridge_client_spawn(&l->client, &s, &fds, e);
}

/* Safe because: what travels into the sandbox is its own end of a socket pair. */
static int hand_over(struct bridge_link *l)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = {.buf = {0}};
	unsigned char word[2] = {'C', ++l->number};
	struct iovec iov = {word, sizeof(word)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = u.buf,
			   .msg_controllen = sizeof(u.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &l->channel, sizeof(int));
	n = sendmsg(l->control, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	cleanup_fd(&l->channel);
	l->state = LINK_GREETING;
	return n == sizeof(word) ? 0 : -EPIPE;
}

static bool try_again(struct link_tries *t)
{
	int64_t now = clock_mono_ns();

	t->left += (double)(now - t->at_ns) / (double)(LINK_TRY_EACH_MS * NS_PER_MS);
	t->at_ns = now;
	if (t->left > LINK_TRIES)
		t->left = LINK_TRIES;
	if (t->left < 1)
		return false;
	t->left -= 1;
	return true;
}

/* A gateway that has no control socket comes with its channel. */
static int give_channel(struct bridge_link *l)
{
	_cleanup_fd_ int channel = -1;
	struct err e = ERR_INIT;

	if (l->listener >= 0) {
		l->state = LINK_GREETING;
		return 0;
	}
	if (!l->o.paired)
		return hand_over(l);
	channel = TAKE_FD(l->channel);
	l->state = LINK_GREETING;
	if (!l->o.gateway || !try_again(&l->gateways))
		return -EPIPE;
	return l->o.gateway(l->o.gateway_arg, channel, &e);
}

/* Opening. --------------------------------------------------------------------------------- */

static int copy_ids(struct bridge_link *l)
{
	const struct view v[] = {l->o.run_id, l->o.agent_id, l->o.company_id, l->o.task_id};

	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		l->ids[i] = strndup(v[i].n ? v[i].p : "", v[i].n);
		if (!l->ids[i])
			return -ENOMEM;
	}
	return 0;
}

static int share(struct bridge_link *l, struct err *e)
{
	void *p;

	l->memory = memfd_create("airlock-bridge", MFD_CLOEXEC);
	if (l->memory < 0 || ftruncate(l->memory, sizeof(*l->shared)) < 0)
		return err_sys(e, errno, "memory of the bridge");
	p = mmap(NULL, sizeof(*l->shared), PROT_READ | PROT_WRITE, MAP_SHARED, l->memory, 0);
	if (p == MAP_FAILED)
		return err_sys(e, errno, "memory of the bridge");
	l->shared = p;
	return 0;
}

static int keep(int fd, int *ret)
{
	*ret = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd >= 0 && *ret < 0 ? -errno : 0;
}

static bool file_changed(struct bridge_link *l)
{
	struct stat st;
	bool changed;

	if (!l->o.in->policy_text || stat(l->o.in->policy_name, &st) < 0)
		return false;
	changed = st.st_size != l->policy_size || st.st_mtim.tv_sec != l->policy_time.tv_sec ||
		  st.st_mtim.tv_nsec != l->policy_time.tv_nsec;
	l->policy_size = st.st_size;
	l->policy_time = st.st_mtim;
	return changed;
}

static int new_control(struct bridge_link *l, int *ret_theirs, struct err *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "bridge channel");
	l->control = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

int link_open(struct bridge_link *l, const struct bridge_link_opts *o, int *ret_gateway,
	      struct err *e)
{
	const int64_t now = clock_mono_ns();
	_cleanup_fd_ int theirs = -1;
	int r;

	*l = (struct bridge_link){.o = *o,
				  .control = -1,
				  .channel = -1,
				  .memory = -1,
				  .dir = -1,
				  .audit = -1,
				  .listener = -1,
				  .pinged_ns = INT64_MAX,
				  .polled_ns = now,
				  .helpers = {LINK_TRIES, now},
				  .gateways = {LINK_TRIES, now}};
	if (copy_ids(l) < 0 || keep(o->dir, &l->dir) < 0 || keep(o->audit, &l->audit) < 0 ||
	    (o->transport == BRIDGE_DIRECT && keep(o->listener, &l->listener) < 0))
		return err_set(e, ERR_NOMEM, "bridge: no memory or descriptors left");
	(void)file_changed(l);
	r = share(l, e);
	if (r < 0)
		return r;
	if (!l->o.paired && l->listener < 0)
		r = new_control(l, &theirs, e);
	if (r == 0)
		r = spawn(l, e);
	if (r == 0)
		r = bridge_client_confined(&l->client, e);
	if (r == 0 && l->listener >= 0) {
		l->state = LINK_GREETING;
	} else if (r == 0 && l->o.paired) {
		theirs = TAKE_FD(l->channel);
		l->state = LINK_GREETING;
	} else if (r == 0 && hand_over(l) < 0) {
		r = err_set(e, ERR_UNAVAILABLE, "bridge: the gateway's socket is closed");
	}
	if (r == 0)
		*ret_gateway = TAKE_FD(theirs);
	return r;
}

int link_ready(struct bridge_link *l, struct err *e)
{
	int r = bridge_client_ready(&l->client, e);

	if (r == 0)
		l->state = LINK_UP;
	return r;
}

/* Again. ----------------------------------------------------------------------------------- */

/* Those who wait to be accepted are told; the socket itself may be used again by whoever has another descriptor of it. */
static void stop_listening(struct bridge_link *l)
{
	if (l->listener >= 0)
		listen_end(l->listener);
	cleanup_fd(&l->listener);
}

static void lose(struct bridge_link *l)
{
	l->state = LINK_LOST;
	cleanup_fd(&l->channel);
	/* The gateway is not to hope any longer, nor are those who connect. */
	cleanup_fd(&l->control);
	stop_listening(l);
	bridge_client_stop(&l->client);
}

/* This helper is of no use any more; another one may be. */
static void go_down(struct bridge_link *l, const char *why, bool deaf)
{
	char text[400];
	int64_t now = clock_mono_ns();

	(void)snprintf(l->why, sizeof(l->why), "%s", why);
	if (deaf)
		bridge_client_kill(&l->client);
	else
		bridge_client_stop(&l->client);
	cleanup_fd(&l->channel);
	l->pinged_ns = INT64_MAX;
	if (!try_again(&l->helpers)) {
		(void)snprintf(l->why, sizeof(l->why), "%s; %u new ones ended as well", why,
			       l->restarts);
		lose(l);
		return;
	}
	if (l->state == LINK_UP) {
		(void)snprintf(text, sizeof(text),
			       "the bridge is interrupted (%s); it is started again", l->why);
		note(l, true, text);
	}
	l->state = LINK_DOWN;
	/* At once the first time, then with more and more patience. */
	l->due_ns = now;
	if (l->helpers.left < LINK_TRIES - 1)
		l->due_ns += (int64_t)((LINK_TRIES - l->helpers.left) * 200) * NS_PER_MS;
}

/* Its channel, if it had one, is of no use to another gateway. */
static void gateway_ended(struct bridge_link *l)
{
	static const char why[] = "the gateway in the sandbox ended";
	_cleanup_fd_ int theirs = -1;
	struct err e = ERR_INIT;

	cleanup_fd(&l->control);
	(void)snprintf(l->why, sizeof(l->why), "%s", why);
	if (l->state == LINK_UP || l->state == LINK_GREETING)
		go_down(l, why, false);
	if (l->state == LINK_LOST)
		return;
	if (l->o.gateway && try_again(&l->gateways) && new_control(l, &theirs, &e) == 0 &&
	    l->o.gateway(l->o.gateway_arg, theirs, &e) == 0)
		return;
	if (*e.text)
		(void)snprintf(l->why, sizeof(l->why),
			       "%s, and another one cannot be started: %.150s", why, e.text);
	lose(l);
}

/* What the gateway says; it lives in the sandbox, and so it is one word and no more. */
static void hear_gateway(struct bridge_link *l)
{
	unsigned char word[2];
	ssize_t n;

	for (int i = 0; i < 16 && l->control >= 0; i++) {
		n = recv(l->control, word, sizeof(word), MSG_DONTWAIT);
		if (n < 0)
			return;
		if (n == 0) {
			gateway_ended(l);
			return;
		}
		if (n == 2 && word[0] == 'L' && word[1] == l->number && l->state == LINK_UP)
			/* Asked to end, not killed: a word from the sandbox must not cost lines of the audit. */
			go_down(l, "the gateway lost its channel", false);
	}
}

/* False: it hangs. Time in which nobody looked does not count: perhaps all of us were stopped. */
static bool hears(struct bridge_link *l, int64_t now)
{
	int64_t gap = now - l->polled_ns;

	l->polled_ns = now;
	if (l->client.pong)
		l->pinged_ns = INT64_MAX;
	if (l->state != LINK_UP)
		return true;
	if (l->pinged_ns != INT64_MAX) {
		if (gap > LINK_GAP_MS * NS_PER_MS)
			l->pinged_ns += gap;
		return now - l->pinged_ns < LINK_DEAF_MS * NS_PER_MS;
	}
	if (now >= l->ping_ns) {
		bridge_client_ping(&l->client);
		l->pinged_ns = now;
		l->ping_ns = now + LINK_PING_MS * NS_PER_MS;
	}
	return true;
}

static void go_on(struct bridge_link *l, int64_t now)
{
	struct err e = ERR_INIT;

	if (l->client.lost && l->state != LINK_DOWN) {
		char why[sizeof(l->client.why)];

		memcpy(why, l->client.why, sizeof(why));
		go_down(l, why, false);
	} else if (l->state == LINK_STARTING && l->client.confined) {
		if (give_channel(l) < 0)
			go_down(l,
				l->o.paired ? "no gateway can be started"
					    : "the gateway's socket is closed",
				false);
	} else if (l->state == LINK_GREETING && l->client.ready) {
		l->state = LINK_UP;
		l->restarts++;
		note(l, true, "the bridge is up again");
	} else if (l->state != LINK_UP && l->state != LINK_DOWN && now >= l->due_ns) {
		go_down(l, "a new airlock-bridge was not ready in time", true);
	} else if (!hears(l, now)) {
		go_down(l, "airlock-bridge does not answer any more", true);
	}
	if (l->state == LINK_DOWN && now >= l->due_ns && spawn(l, &e) < 0)
		go_down(l, e.text, true);
}

/* Policy. ---------------------------------------------------------------------------------- */

static void forget_next(struct bridge_link *l)
{
	free(l->next_policy);
	l->next_policy = NULL;
	l->next_len = 0;
}

static void hear_policy(struct bridge_link *l)
{
	struct bridge_inputs *in = l->o.in;
	char text[600];

	if (!l->client.policy_answer)
		return;
	if (l->client.policy_answer > 0 && l->next_policy) {
		free(in->policy_text);
		in->policy_text = l->next_policy;
		in->policy_len = l->next_len;
		l->next_policy = NULL;
		(void)snprintf(text, sizeof(text), "policy %.200s read again: new requests use it",
			       in->policy_name);
		note(l, false, text);
	} else if (l->client.policy_answer < 0) {
		(void)snprintf(text, sizeof(text), "the policy stays as it was: %s",
			       l->client.policy_why);
		note(l, true, text);
	}
	l->client.policy_answer = 0;
	forget_next(l);
}

static void look_at_policy(struct bridge_link *l, int64_t now)
{
	struct buf text = BUF_INIT(CONFIG_MAX);
	struct err e = ERR_INIT;
	char why[600];
	int r;

	if (l->state != LINK_UP || l->next_policy || (now < l->policy_ns && !l->policy_reread))
		return;
	l->policy_ns = now + LINK_POLICY_MS * NS_PER_MS;
	if ((!file_changed(l) && !l->policy_reread) || !l->o.in->policy_text)
		return;
	l->policy_reread = false;
	r = policy_read(l->o.in->policy_name, &text, &e);
	if (r == 0)
		r = bridge_client_policy(&l->client, buf_text(&text), text.len, &e);
	if (r == 0) {
		l->next_len = text.len;
		l->next_policy = buf_take(&text);
	} else {
		(void)snprintf(why, sizeof(why), "the policy stays as it was: %s", e.text);
		note(l, true, why);
	}
	buf_done(&text);
}

void link_reread(struct bridge_link *l)
{
	l->policy_reread = true;
}

bool link_poll(struct bridge_link *l)
{
	int64_t now = clock_mono_ns();

	if (l->state == LINK_NONE || l->state == LINK_LOST)
		return l->state == LINK_NONE;
	bridge_client_poll(&l->client);
	hear_policy(l);
	hear_gateway(l);
	if (l->state != LINK_LOST)
		go_on(l, now);
	if (l->state != LINK_LOST)
		look_at_policy(l, now);
	return l->state != LINK_LOST;
}

/*
 * What the last helper had decided and not written, however it ended. Counted twice rather than not at all: what it had begun to
 * count and not to tell is lost.
 */
static void rescue(struct bridge_link *l)
{
	struct bridge_shared *s = l->shared;
	int fd = l->audit < 0 ? -1 : fcntl(l->audit, F_DUPFD_CLOEXEC, 3);
	struct audit a;

	if (fd >= 0 && audit_open_in(&a, fd, &s->audit, NULL) == 0) {
		audit_close(&a);
		s->counts.audit_lost += a.lost;
	}
	if (l->audit >= 0 && s->counts.requests > s->audit.told)
		s->counts.audit_lost += s->counts.requests - s->audit.told;
}

void link_stop(struct bridge_link *l, struct bridge_counts *ret)
{
	if (l->state == LINK_NONE && l->control <= 0 && !l->shared)
		return;
	/* First: what is asked from now on is not worth waiting. */
	if (l->control >= 0)
		cleanup_fd(&l->control);
	bridge_client_stop(&l->client);
	if (l->listener >= 0)
		stop_listening(l);
	if (l->shared) {
		rescue(l);
		if (ret)
			*ret = l->shared->counts;
		(void)munmap(l->shared, sizeof(*l->shared));
	}
	l->shared = NULL;
	cleanup_fd(&l->channel);
	cleanup_fd(&l->memory);
	cleanup_fd(&l->dir);
	cleanup_fd(&l->audit);
	for (size_t i = 0; i < ARRAY_LEN(l->ids); i++) {
		free(l->ids[i]);
		l->ids[i] = NULL;
	}
	forget_next(l);
	l->state = LINK_NONE;
	l->control = l->listener = -1;
}
