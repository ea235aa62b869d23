#include "engine/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* poll says "writable" for a pipe or terminal when this much fits without blocking (PIPE_BUF). */
#define SINK_CHUNK 4096
#define BACKGROUND_MS 250
#define CTRL_C 3

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/*
 * A pipe is opened anew, non-blocking, because O_NONBLOCK on the caller's own description would
 * change it for every other process that has it.
 */
static void open_sink(struct pump_out *o)
{
	struct stat st;
	char path[64];

	o->sink_own = -1;
	if (o->sink < 0)
		return;
	if (fstat(o->sink, &st) < 0) {
		o->sink = -1;
		return;
	}
	o->sink_reg = S_ISREG(st.st_mode);
	if (!S_ISFIFO(st.st_mode))
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", o->sink);
	o->sink_own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

static int make_out(struct pump_out *o, int *cmd, struct err *e)
{
	int p[2];

	o->data = malloc(PUMP_CHUNK);
	if (!o->data)
		return err_set(e, ERR_NOMEM, "streams: out of memory");
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	o->pipe = p[0];
	*cmd = p[1];
	(void)fcntl(o->pipe, F_SETFL, O_NONBLOCK);
	open_sink(o);
	return 0;
}

static int make_in(struct pump *p, int *cmd, struct err *e)
{
	int q[2];

	if (p->in_src < 0) {
		*cmd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return *cmd < 0 ? err_sys(e, errno, "open /dev/null") : 0;
	}
	p->in_data = malloc(PUMP_CHUNK);
	if (!p->in_data)
		return err_set(e, ERR_NOMEM, "streams: out of memory");
	if (pipe2(q, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	p->in_pipe = q[1];
	*cmd = q[0];
	(void)fcntl(p->in_pipe, F_SETFL, O_NONBLOCK);
	p->in_tty = isatty(p->in_src) == 1;
	return 0;
}

int pump_init(struct pump *p, const struct pump_opts *o, int cmd[3], struct err *e)
{
	int r;

	*p = (struct pump){.log = o->log, .in_src = o->in, .in_pipe = -1};
	p->out[0] = (struct pump_out){.pipe = -1,
				      .sink = o->out,
				      .sink_own = -1,
				      .capture = o->capture_out,
				      .max = o->out_max,
				      .stream = RUNLOG_OUT};
	p->out[1] = (struct pump_out){.pipe = -1,
				      .sink = o->err,
				      .sink_own = -1,
				      .capture = o->capture_err,
				      .stream = RUNLOG_ERR};
	cmd[0] = cmd[1] = cmd[2] = -1;
	/* Closed by the caller of airlock (`<&-`): the command gets an empty stdin. */
	if (p->in_src >= 0 && fcntl(p->in_src, F_GETFD) < 0)
		p->in_src = -1;
	r = make_in(p, &cmd[0], e);
	if (r == 0)
		r = make_out(&p->out[0], &cmd[1], e);
	if (r == 0 && !o->tty)
		r = make_out(&p->out[1], &cmd[2], e);
	if (r < 0) {
		pump_done(p);
		for (int i = 0; i < 3; i++)
			close_fd(&cmd[i]);
	}
	return r;
}

void pump_done(struct pump *p)
{
	for (int i = 0; i < 2; i++) {
		close_fd(&p->out[i].pipe);
		close_fd(&p->out[i].sink_own);
		free(p->out[i].data);
		p->out[i].data = NULL;
	}
	close_fd(&p->in_pipe);
	free(p->in_data);
	p->in_data = NULL;
}

static bool background(const struct pump *p)
{
	return p->in_tty && tcgetpgrp(p->in_src) != getpgrp();
}

size_t pump_poll(struct pump *p, struct pollfd *v, int *timeout_ms)
{
	size_t n = 0;

	for (int i = 0; i < 2; i++) {
		struct pump_out *o = &p->out[i];

		if (o->len)
			v[n++] = (struct pollfd){.fd = o->sink_own >= 0 ? o->sink_own : o->sink,
						 .events = POLLOUT};
		else if (o->pipe >= 0)
			v[n++] = (struct pollfd){.fd = o->pipe, .events = POLLIN};
	}
	if (p->in_pipe < 0)
		return n;
	if (p->in_len) {
		v[n++] = (struct pollfd){.fd = p->in_pipe, .events = POLLOUT};
		return n;
	}
	/* Only to learn that the reader has gone; a terminal is left alone while in the background,
	 * where reading it would stop us. */
	v[n++] = (struct pollfd){.fd = p->in_pipe, .events = 0};
	if (!background(p))
		v[n++] = (struct pollfd){.fd = p->in_src, .events = POLLIN};
	else if (*timeout_ms < 0 || *timeout_ms > BACKGROUND_MS)
		*timeout_ms = BACKGROUND_MS;
	return n;
}

static void lose_sink(struct pump_out *o)
{
	o->len = 0;
	o->sink = -1;
	close_fd(&o->sink_own);
	/* As a shell pipeline: the command learns by SIGPIPE that nobody reads any more. */
	close_fd(&o->pipe);
}

/* A full disk is no reader that left: the output goes on into the log. */
static void fail_sink(struct pump_out *o, int error)
{
	if (error == EPIPE) {
		lose_sink(o);
		return;
	}
	o->len = 0;
	o->sink = -1;
	close_fd(&o->sink_own);
	o->sink_error = error;
}

static void write_sink(struct pump_out *o)
{
	while (o->len) {
		size_t want =
		    o->sink_own >= 0 || o->sink_reg || o->len < SINK_CHUNK ? o->len : SINK_CHUNK;
		ssize_t k = write(o->sink_own >= 0 ? o->sink_own : o->sink, o->data + o->off, want);

		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			return;
		if (k < 0) {
			fail_sink(o, errno);
			return;
		}
		o->off += (size_t)k;
		o->len -= (size_t)k;
		if (o->sink_own < 0 && !o->sink_reg)
			return;
	}
}

static void take(struct pump *p, struct pump_out *o, size_t n)
{
	o->total += n;
	if (o->max && o->total > o->max) {
		lose_sink(o);
		return;
	}
	if (p->log)
		runlog_write(p->log, o->stream, clock_real_ns(), o->data, n);
	if (o->capture) {
		size_t room = o->capture->max - o->capture->len;

		(void)buf_put(o->capture, o->data, n < room ? n : room);
		return;
	}
	if (o->sink < 0)
		return;
	o->off = 0;
	o->len = n;
	if (o->sink_reg || o->sink_own >= 0)
		write_sink(o);
}

static void read_out(struct pump *p, struct pump_out *o)
{
	ssize_t k = read(o->pipe, o->data, PUMP_CHUNK);

	if (k > 0)
		take(p, o, (size_t)k);
	else if (k == 0 || (errno != EAGAIN && errno != EINTR))
		close_fd(&o->pipe);
}

static void feed(struct pump *p)
{
	ssize_t k = write(p->in_pipe, p->in_data + p->in_off, p->in_len);

	if (k < 0 && errno != EAGAIN && errno != EINTR) {
		/* A reader that closes early is no error of ours. */
		close_fd(&p->in_pipe);
		return;
	}
	if (k > 0) {
		p->in_off += (size_t)k;
		p->in_len -= (size_t)k;
	}
}

static void read_in(struct pump *p)
{
	ssize_t k = read(p->in_src, p->in_data, PUMP_CHUNK);

	if (k > 0) {
		if (p->in_break && memchr(p->in_data, CTRL_C, (size_t)k))
			(void)raise(SIGINT);
		p->in_off = 0;
		p->in_len = (size_t)k;
		feed(p);
	} else if (k == 0 || (errno != EAGAIN && errno != EINTR)) {
		close_fd(&p->in_pipe);
	}
}

void pump_run(struct pump *p, const struct pollfd *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!v[i].revents)
			continue;
		for (int k = 0; k < 2; k++) {
			struct pump_out *o = &p->out[k];

			if (o->pipe >= 0 && v[i].fd == o->pipe && !o->len)
				read_out(p, o);
			else if (o->len && (v[i].fd == o->sink || v[i].fd == o->sink_own) &&
				 v[i].events == POLLOUT)
				write_sink(o);
		}
		if (p->in_pipe >= 0 && v[i].fd == p->in_pipe) {
			if (v[i].revents & (POLLERR | POLLNVAL))
				close_fd(&p->in_pipe);
			else if (p->in_len)
				feed(p);
		} else if (p->in_pipe >= 0 && v[i].fd == p->in_src && v[i].events == POLLIN &&
			   !p->in_len) {
			read_in(p);
		}
	}
}

bool pump_drained(const struct pump *p)
{
	return p->out[0].pipe < 0 && p->out[1].pipe < 0 && !pump_busy(p);
}

bool pump_busy(const struct pump *p)
{
	return p->out[0].len || p->out[1].len;
}

void pump_end_input(struct pump *p)
{
	close_fd(&p->in_pipe);
}
