/*
 * pump.h: the bytes of one command: stdin to it, stdout and stderr from it.
 *
 * The command's ends are pipes that Airlock makes; the caller's own descriptors never
 * reach a sandbox. Output goes to the run log and to a sink (descriptor or bounded capture) byte for
 * byte and in the order in which it was read. Both outputs are served at once. A slow sink stops
 * the reading, so the command feels it; a sink whose reader left closes the command's pipe.
 */
#ifndef AIRLOCK_ENGINE_PUMP_H
#define AIRLOCK_ENGINE_PUMP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/runlog.h"

#define PUMP_CHUNK 65536
#define PUMP_FDS 6 /* entries that pump_poll may add */

struct pump_out {
	int pipe;	     /* read end, -1 when done */
	int sink;	     /* borrowed; -1: none */
	bool sink_reg;	     /* a file never blocks in poll's sense */
	int sink_own;	     /* own non-blocking description of sink, or -1 */
	struct buf *capture; /* instead of a sink; beyond its maximum the bytes are dropped */
	enum runlog_stream stream;
	char *data; /* PUMP_CHUNK bytes read and not yet taken by the sink */
	size_t off, len;
	uint64_t total, max; /* max 0: none */
	int sink_error; /* errno of the write that lost the sink; the log goes on. 0; never EPIPE */
};

struct pump {
	struct runlog *log; /* may be NULL */
	struct pump_out out[2];
	int in_src;    /* borrowed; -1: none */
	bool in_tty;   /* a terminal: not read while we are in the background */
	int in_pipe;   /* write end, -1 when done */
	bool in_break; /* Ctrl-C in the input is a signal for us */
	char *in_data;
	size_t in_off, in_len;
	bool in_eof;
};

struct pump_opts {
	struct runlog *log;
	int in;	      /* caller's stdin, or -1: the command gets an empty one */
	int out, err; /* sinks, or -1 */
	struct buf *capture_out, *capture_err;
	uint64_t out_max; /* bytes of stdout; beyond it the pipe is closed; 0: no limit */
	bool tty;	  /* one stream both ways: no stderr */
};

/* Makes the pipes. cmd[0..2]: the command's ends, owned by the caller. */
int pump_init(struct pump *p, const struct pump_opts *o, int cmd[3], struct err *e);
void pump_done(struct pump *p);
/* Adds what to wait for; *timeout_ms is lowered when the pump wants to look again. Returns how many. */
size_t pump_poll(struct pump *p, struct pollfd *v, int *timeout_ms);
/* Moves bytes; v as filled by pump_poll and poll. */
void pump_run(struct pump *p, const struct pollfd *v, size_t n);
/* Nothing buffered and both outputs at their end. */
bool pump_drained(const struct pump *p);
/* Bytes are still waiting for a slow sink. */
bool pump_busy(const struct pump *p);
/* After the exit event: no more input. */
void pump_end_input(struct pump *p);

#endif
