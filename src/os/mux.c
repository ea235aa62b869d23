#include "os/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define CHUNK 32768
#define TX_HIGH (512u << 10) /* bytes that wait for the stream; then nothing more is read for it */
#define TX_MAX                      \
	(2 *                        \
	 (2 * FRAME_MAX + TX_HIGH + \
	  MUX_KEPT)) /* what messages may add to that, and as much that is only not moved yet */
#define ROOM_TOLD (MUX_WINDOW / 4)
#define CAME_TOLD 65536
#define HEAD_MAX 1024

static void no_wait(int fd)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void mux_init(struct mux *m, int in, int out, bool opener)
{
	*m = (struct mux){.in = in, .out = out, .opener = opener, .next_id = 1};
	buf_init(&m->rx, FRAME_MAX + FRAME_HEADER + CHUNK);
	buf_init(&m->tx, TX_MAX);
	buf_init(&m->head, HEAD_MAX);
	m->heard_ns = m->said_ns = clock_mono_ns();
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		m->chan[i].fd = m->chan[i].peer = -1;
	no_wait(in);
	no_wait(out);
}

static void drop(struct mux_chan *c)
{
	/* A socket may have other holders, whom a close would not tell. */
	if (c->fd >= 0)
		(void)shutdown(c->fd, c->reads ? SHUT_RD : SHUT_WR);
	cleanup_fd(&c->fd);
	cleanup_fd(&c->peer);
	buf_done(&c->data);
	*c = (struct mux_chan){.fd = -1, .peer = -1};
}

void mux_done(struct mux *m)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		drop(&m->chan[i]);
		buf_done(&m->last[i].payload);
		m->last[i].used = false;
	}
	cleanup_fd(&m->in);
	cleanup_fd(&m->out);
	buf_done(&m->rx);
	buf_done(&m->tx);
	buf_done(&m->head);
}

int mux_put(struct mux *m, uint8_t type, const void *payload, size_t n)
{
	if (m->out < 0 && !m->away)
		return -EPIPE;
	return frame_put(&m->tx, type, 0, payload, n);
}

bool mux_roomy(const struct mux *m)
{
	return m->tx.len - m->tx_off < TX_HIGH && m->tx_off - m->had < MUX_KEPT;
}

void mux_detach(struct mux *m)
{
	cleanup_fd(&m->in);
	cleanup_fd(&m->out);
	buf_done(&m->head);
	m->head_off = 0;
	m->eof = false;
	m->away = true;
}

int mux_fits(const struct mux *m, uint64_t had)
{
	return had < m->tx_had || had - m->tx_had > m->tx_off - m->had ? -EPROTO : 0;
}

/* The other side has that many bytes of ours: they need not be kept. */
static int take_had(struct mux *m, uint64_t had)
{
	if (mux_fits(m, had) < 0)
		return -EPROTO;
	m->had += (size_t)(had - m->tx_had);
	m->tx_had = had;
	/* What moves is never more than what goes. */
	if (m->had >= m->tx.len - m->had) {
		buf_drop(&m->tx, m->had);
		m->tx_off -= m->had;
		m->had = 0;
	}
	return 0;
}

int mux_attach(struct mux *m, int in, int out, uint64_t had, const struct buf *head)
{
	_cleanup_fd_ int a = in, b = out;
	int r = take_had(m, had);

	if (r == 0 && head)
		r = buf_put(&m->head, head->data, head->len);
	if (r < 0)
		return r;
	m->in = TAKE_FD(a);
	m->out = TAKE_FD(b);
	no_wait(m->in);
	no_wait(m->out);
	m->tx_off = m->had;
	m->away = false;
	m->heard_ns = m->said_ns = clock_mono_ns();
	return 0;
}

int mux_feed(struct mux *m, const void *p, size_t n)
{
	m->came += n;
	return buf_put(&m->rx, p, n);
}

/* A message about one channel, with a second number if there is one. */
static int tell(struct mux *m, uint8_t type, uint32_t id, const uint32_t *more)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);

	(void)buf_u32(&b, id);
	if (more)
		(void)buf_u32(&b, *more);
	return b.err ? b.err : mux_put(m, type, b.data, b.len);
}

static struct mux_chan *find(struct mux *m, uint32_t id)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		if (m->chan[i].fd >= 0 && m->chan[i].id == id)
			return &m->chan[i];
	return NULL;
}

static struct mux_chan *slot(struct mux *m)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		if (m->chan[i].fd < 0 && m->chan[i].peer < 0)
			return &m->chan[i];
	return NULL;
}

static void begin(struct mux_chan *c, uint32_t id, uint32_t group, int fd, bool reads)
{
	*c = (struct mux_chan){
	    .id = id, .group = group, .fd = fd, .peer = -1, .reads = reads, .room = MUX_WINDOW};
	buf_init(&c->data, MUX_WINDOW);
	no_wait(fd);
}

int mux_open(struct mux *m, uint32_t group, unsigned flags, int fd)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);
	_cleanup_fd_ int mine = fd;
	struct mux_chan *c = slot(m);
	size_t open = 0;
	int r;

	/* The other side may still be busy with ones that have ended here: half of the places are for those. */
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		open += m->chan[i].fd >= 0;
	if (!c || open >= MUX_CHANNELS / 2)
		return -EAGAIN;
	(void)buf_u32(&b, m->next_id);
	(void)buf_u32(&b, group);
	(void)buf_u8(&b, (uint8_t)flags);
	r = b.err ? b.err : mux_put(m, MX_OPEN, b.data, b.len);
	if (r < 0)
		return r;
	begin(c, m->next_id++, group, TAKE_FD(mine), !(flags & MUX_TO_OPENER));
	c->awaited = flags & MUX_AWAITED;
	return 0;
}

/* The other side opened one: a pipe, whose far end somebody here will take. */
static int opened(struct mux *m, struct cursor *cur)
{
	uint32_t id = cursor_u32(cur), group = cursor_u32(cur);
	unsigned flags = cursor_u8(cur);
	struct mux_chan *c = slot(m);
	bool reads = flags & MUX_TO_OPENER;
	int p[2];

	if (!cursor_end(cur) || m->opener || id != m->next_id ||
	    (flags & ~(unsigned)(MUX_TO_OPENER | MUX_AWAITED)) || !c)
		return -EPROTO;
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	m->next_id++;
	begin(c, id, group, reads ? p[0] : p[1], reads);
	c->peer = reads ? p[1] : p[0];
	c->awaited = flags & MUX_AWAITED;
	return 0;
}

size_t mux_take_peers(struct mux *m, uint32_t group, int *fds, size_t max)
{
	size_t n = 0;

	for (; n < max; n++) {
		struct mux_chan *first = NULL;

		for (size_t i = 0; i < MUX_CHANNELS; i++) {
			struct mux_chan *c = &m->chan[i];

			if (c->peer >= 0 && c->group == group && (!first || c->id < first->id))
				first = c;
		}
		if (!first)
			break;
		fds[n] = TAKE_FD(first->peer);
		/* One that ended before it was taken was kept for this. */
		if (first->fd < 0)
			drop(first);
	}
	return n;
}

void mux_end_group(struct mux *m, uint32_t group)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		struct mux_chan *c = &m->chan[i];

		if ((c->fd < 0 && c->peer < 0) || c->group != group)
			continue;
		/* Who sends would wait for room that nobody gives; that this cannot be said breaks the stream anyway. */
		if (!c->reads && c->fd >= 0)
			(void)tell(m, MX_STOP, c->id, NULL);
		drop(c);
	}
}

/* Ours ends; a pipe that nobody has taken yet keeps its bytes for who takes it. */
static void finish(struct mux_chan *c)
{
	if (c->peer < 0) {
		drop(c);
		return;
	}
	cleanup_fd(&c->fd);
	buf_done(&c->data);
}

static int pass_on(struct mux *m, struct mux_chan *c)
{
	while (c->data.len > c->off) {
		ssize_t k = write(c->fd, c->data.data + c->off, c->data.len - c->off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN)
			break;
		if (k < 0) {
			uint32_t id = c->id;

			finish(c);
			return tell(m, MX_STOP, id, NULL);
		}
		c->off += (size_t)k;
		c->passed += (uint32_t)k;
	}
	if (c->off == c->data.len) {
		buf_reset(&c->data);
		c->off = 0;
	}
	if (c->last && !c->data.len) {
		finish(c);
		return 0;
	}
	if (c->passed >= ROOM_TOLD) {
		uint32_t n = c->passed;

		c->passed = 0;
		return tell(m, MX_ROOM, c->id, &n);
	}
	return 0;
}

static int take_data(struct mux *m, struct mux_chan *c, struct view v)
{
	if (c->reads || c->last)
		return -EPROTO;
	if (c->off) {
		buf_drop(&c->data, c->off);
		c->off = 0;
	}
	/* Within the window there is always room: what was passed on and not told counts as well. */
	if (v.n > MUX_WINDOW - c->data.len - c->passed)
		return -EPROTO;
	if (buf_put(&c->data, v.p, v.n) < 0)
		return -ENOMEM;
	return pass_on(m, c);
}

static int channel_frame(struct mux *m, const struct frame *f)
{
	struct mux_chan *c;
	struct cursor cur;
	uint32_t id, n;

	cursor_init(&cur, f->payload.p, f->payload.n);
	if (f->type == MX_ALIVE) {
		uint64_t had = cursor_u64(&cur);

		if (!cursor_end(&cur))
			return -EPROTO;
		/* An old one, sent again behind a cut: that has told more already. */
		return had < m->tx_had ? 0 : take_had(m, had);
	}
	if (f->type == MX_OPEN)
		return opened(m, &cur);
	id = cursor_u32(&cur);
	if (cur.failed || id == 0 || id >= m->next_id)
		return -EPROTO;
	c = find(m, id);
	/* One that we have ended: what is under way still comes. */
	if (!c)
		return 0;
	switch (f->type) {
	case MX_DATA:
		return take_data(m, c, (struct view){(const char *)cur.p, cur.left});
	case MX_EOF:
		if (cur.left || c->reads)
			return -EPROTO;
		c->last = true;
		return pass_on(m, c);
	case MX_STOP:
		if (cur.left || !c->reads)
			return -EPROTO;
		finish(c);
		return 0;
	default:
		n = cursor_u32(&cur);
		if (!cursor_end(&cur) || !c->reads || n > MUX_WINDOW - c->room)
			return -EPROTO;
		c->room += n;
		return 0;
	}
}

int mux_next(struct mux *m, struct frame *ret)
{
	for (;;) {
		long total;
		int r;

		buf_drop(&m->rx, m->used);
		m->used = 0;
		total = frame_parse(m->rx.data, m->rx.len, ret);
		if (total <= 0)
			return total < 0 ? -EPROTO : 0;
		if (ret->nfds)
			return -EPROTO;
		m->used = (size_t)total;
		if (ret->type < MX_FIRST || ret->type > MX_LAST)
			return 1;
		r = channel_frame(m, ret);
		if (r < 0)
			return r;
	}
}

static int tell_came(struct mux *m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);

	m->told = m->came;
	(void)buf_u64(&b, m->came);
	return b.err ? b.err : mux_put(m, MX_ALIVE, b.data, b.len);
}

static bool unsent(const struct mux *m)
{
	return m->tx.len > m->tx_off || m->head.len > m->head_off;
}

static int read_stream(struct mux *m)
{
	char *to = buf_room(&m->rx, CHUNK);
	ssize_t k;

	if (!to)
		return m->rx.err;
	k = read(m->in, to, CHUNK);
	if (k < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	m->eof = k == 0;
	if (k > 0)
		m->heard_ns = clock_mono_ns();
	buf_add(&m->rx, (size_t)k);
	m->came += (uint64_t)k;
	return m->came - m->told >= CAME_TOLD ? tell_came(m) : 0;
}

/* False: it is not all out. */
static bool write_head(struct mux *m, int *ret)
{
	while (m->head.len > m->head_off) {
		ssize_t k = write(m->out, m->head.data + m->head_off, m->head.len - m->head_off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			*ret = errno == EAGAIN ? 0 : -errno;
			return false;
		}
		m->head_off += (size_t)k;
	}
	return true;
}

static int write_stream(struct mux *m)
{
	int r;

	if (!write_head(m, &r))
		return r;
	while (m->tx.len > m->tx_off) {
		ssize_t k = write(m->out, m->tx.data + m->tx_off, m->tx.len - m->tx_off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return errno == EAGAIN ? 0 : -errno;
		m->tx_off += (size_t)k;
		m->said_ns = clock_mono_ns();
	}
	return 0;
}

static int read_channel(struct mux *m, struct mux_chan *c)
{
	size_t want = c->room < CHUNK ? c->room : CHUNK;
	char chunk[4 + CHUNK];
	struct buf head = BUF_INIT(4);
	ssize_t k;

	(void)buf_u32(&head, c->id);
	if (head.err)
		return head.err;
	memcpy(chunk, head.data, 4);
	buf_done(&head);
	do {
		k = read(c->fd, chunk + 4, want);
	} while (k < 0 && errno == EINTR);
	if (k < 0 && errno == EAGAIN)
		return 0;
	if (k <= 0) {
		uint32_t id = c->id;

		finish(c);
		return tell(m, MX_EOF, id, NULL);
	}
	c->room -= (uint32_t)k;
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		if (m->last[i].used && m->last[i].group == c->group)
			m->last[i].late += (uint64_t)k;
	return mux_put(m, MX_DATA, chunk, 4 + (size_t)k);
}

size_t mux_poll(struct mux *m, struct pollfd *v)
{
	bool roomy = mux_roomy(m);
	size_t n = 2;

	v[0] = (struct pollfd){.fd = m->eof ? -1 : m->in, .events = POLLIN};
	v[1] = (struct pollfd){.fd = unsent(m) ? m->out : -1, .events = POLLOUT};
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		const struct mux_chan *c = &m->chan[i];
		bool wants = c->reads ? roomy && c->room : c->data.len > c->off;

		/* A hang-up cannot be masked, so what has to wait is not watched. */
		v[n++] = (struct pollfd){.fd = wants ? c->fd : -1,
					 .events = c->reads ? POLLIN : POLLOUT};
	}
	return n;
}

int mux_run(struct mux *m, const struct pollfd *v, size_t n)
{
	int r = v[0].revents ? read_stream(m) : 0;

	for (size_t i = 2; r == 0 && i < n; i++) {
		struct mux_chan *c = &m->chan[i - 2];

		if (!v[i].revents || c->fd < 0 || c->fd != v[i].fd)
			continue;
		r = c->reads ? (mux_roomy(m) ? read_channel(m, c) : 0) : pass_on(m, c);
	}
	if (r == 0 && m->out >= 0 && unsent(m))
		r = write_stream(m);
	return r;
}

static bool busy(const struct mux *m, uint32_t group)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++)
		if (m->chan[i].fd >= 0 && m->chan[i].group == group && m->chan[i].awaited)
			return true;
	return false;
}

/* Bytes of it are there and on their way, however slow that is: more than a pipe that somebody holds open. */
static bool moving(const struct mux *m, uint32_t group)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		const struct mux_chan *c = &m->chan[i];
		struct pollfd p = {.fd = c->fd, .events = POLLIN};

		if (c->fd < 0 || c->group != group || !c->awaited)
			continue;
		if (c->reads ? poll(&p, 1, 0) > 0 : c->data.len > c->off)
			return true;
	}
	return false;
}

int mux_no_more(struct mux *m, uint32_t group)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < MUX_CHANNELS; i++) {
		struct mux_chan *c = &m->chan[i];

		if (c->fd < 0 || c->group != group || !c->awaited || c->reads)
			continue;
		c->last = true;
		r = pass_on(m, c);
	}
	return r;
}

int mux_hold(struct mux *m, uint32_t group, uint8_t type, struct view payload, int64_t until_ns)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		struct mux_last *l = &m->last[i];

		if (l->used)
			continue;
		*l = (struct mux_last){
		    .used = true, .group = group, .type = type, .until_ns = until_ns};
		buf_init(&l->payload, FRAME_MAX);
		return buf_put(&l->payload, payload.p, payload.n);
	}
	return -EAGAIN;
}

bool mux_due(struct mux *m, int64_t now_ns, uint8_t *ret_type, struct buf *ret_payload)
{
	for (size_t i = 0; i < MUX_CHANNELS; i++) {
		struct mux_last *l = &m->last[i];

		if (!l->used || (now_ns < l->until_ns && busy(m, l->group)))
			continue;
		if (now_ns >= l->until_ns && l->late <= MUX_LATE && moving(m, l->group)) {
			l->until_ns = now_ns + DRAIN_GRACE_MS * NS_PER_MS;
			continue;
		}
		mux_end_group(m, l->group);
		*ret_type = l->type;
		*ret_payload = l->payload;
		*l = (struct mux_last){0};
		return true;
	}
	return false;
}

int64_t mux_due_ns(const struct mux *m)
{
	int64_t due = INT64_MAX;

	for (size_t i = 0; i < MUX_CHANNELS; i++)
		if (m->last[i].used && m->last[i].until_ns < due)
			due = m->last[i].until_ns;
	return due;
}

int64_t mux_alive_ns(const struct mux *m)
{
	/* What waits is a sign itself, once it gets through. */
	return unsent(m) || m->out < 0 ? INT64_MAX : m->said_ns + REMOTE_SAY_MS * NS_PER_MS;
}

void mux_alive(struct mux *m, int64_t now_ns)
{
	if (now_ns >= mux_alive_ns(m))
		(void)tell_came(m);
}
