#include "guest/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { P_IN, P_OUT, P_MASTER, RELAY_POLLS };

int relay_open(struct relay *r, unsigned rows, unsigned cols, int *ret_slave)
{
	_cleanup_fd_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	int unlock = 0, slave;

	if (master < 0)
		return -errno;
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	/* By descriptor: no path below /dev/pts has to be right or trusted. */
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	r->master = TAKE_FD(master);
	relay_winsize(r, rows, cols);
	*ret_slave = slave;
	return 0;
}

void relay_winsize(struct relay *r, unsigned rows, unsigned cols)
{
	struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

	if (r->master >= 0 && rows && cols)
		(void)ioctl(r->master, TIOCSWINSZ, &w);
}

static void polls(const struct relay *r, struct pollfd *p)
{
	bool in = r->in >= 0 && !r->in_ended && r->in_len < RELAY_IN;
	bool out = r->out >= 0 && r->out_len;
	int events = (r->in_len ? POLLOUT : 0) | (r->out_len ? 0 : POLLIN);

	p[P_IN] = (struct pollfd){.fd = in ? r->in : -1, .events = POLLIN};
	p[P_OUT] = (struct pollfd){.fd = out ? r->out : -1, .events = POLLOUT};
	p[P_MASTER] = (struct pollfd){.fd = events ? r->master : -1, .events = (short)events};
}

/* What a person would type: ^D at the start of a line, twice in the middle of one. */
static void queue_eof(struct relay *r)
{
	struct termios t;

	r->in_ended = true;
	cleanup_fd(&r->in);
	if (r->master < 0 || tcgetattr(r->master, &t) < 0 || !(t.c_lflag & ICANON))
		return;
	if (!r->newline)
		r->to_tty[r->in_len++] = (char)t.c_cc[VEOF];
	r->to_tty[r->in_len++] = (char)t.c_cc[VEOF];
}

static void read_in(struct relay *r)
{
	ssize_t n = read(r->in, r->to_tty + r->in_len, RELAY_IN - r->in_len);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		queue_eof(r);
		return;
	}
	r->in_len += (size_t)n;
	r->newline = r->to_tty[r->in_len - 1] == '\n';
}

static void write_out(struct relay *r)
{
	size_t want = r->out_len < PIPE_BUF ? r->out_len : PIPE_BUF;
	ssize_t n = write(r->out, r->to_out + r->out_at, want);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0) {
		r->muted = true;
		cleanup_fd(&r->out);
		r->out_len = 0;
		return;
	}
	r->out_at += (size_t)n;
	r->out_len -= (size_t)n;
}

static void feed_master(struct relay *r)
{
	ssize_t n = write(r->master, r->to_tty, r->in_len);

	if (n <= 0)
		return;
	r->in_len -= (size_t)n;
	memmove(r->to_tty, r->to_tty + n, r->in_len);
}

static void read_master(struct relay *r)
{
	ssize_t n = read(r->master, r->to_out, RELAY_OUT);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		/* EIO: no process has the other side open and all it wrote was read. */
		cleanup_fd(&r->master);
		return;
	}
	r->out_at = 0;
	r->out_len = r->muted ? 0 : (size_t)n;
}

static void step(struct relay *r, const struct pollfd *p)
{
	if (p[P_IN].fd >= 0 && p[P_IN].revents)
		read_in(r);
	if (p[P_OUT].fd >= 0 && p[P_OUT].revents)
		write_out(r);
	if (p[P_MASTER].fd >= 0 && p[P_MASTER].revents & POLLOUT)
		feed_master(r);
	if (p[P_MASTER].fd >= 0 && !r->out_len &&
	    p[P_MASTER].revents & (POLLIN | POLLHUP | POLLERR))
		read_master(r);
}

_Noreturn void relay_run(struct relay *r)
{
	struct pollfd p[RELAY_POLLS];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (r->master >= 0 || r->out_len) {
		polls(r, p);
		if (poll(p, RELAY_POLLS, -1) > 0)
			step(r, p);
	}
	_exit(0);
}
