/*
 * runlog.h: the log of one run: every byte of output, in order, as it arrived.
 *
 *   "ALRUNLG1"                                          8 bytes
 *   record: u8 stream, u8[3] zero, u32 length, i64 time_ns (realtime), bytes    little endian
 *
 * Append only, one writer, any number of readers at any time. A record that is not whole yet (or
 * was cut by a crash) is simply not there: a reader stops before it and may ask again later.
 * A reader continues at any offset that it got from runlog_next, so following a log costs
 * the new bytes only. A file that became shorter than the offset is reported (-ESTALE).
 *
 * The writer never makes the run fail: when the limit is reached or the disk is full the bytes are
 * counted, and a RUNLOG_DROPPED record says how many are missing at that place as soon as it can
 * be written. A half-written record is cut off again first. On a full disk the log gives back a
 * small reserve that it holds from the start and writes no more output, so that the state of the
 * run and its record still find room.
 */
#ifndef AIRLOCK_WIRE_RUNLOG_H
#define AIRLOCK_WIRE_RUNLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define RUNLOG_MAGIC "ALRUNLG1"
#define RUNLOG_HEAD 8
#define RUNLOG_RECORD 16
#define RUNLOG_RECORD_MAX (1 << 20) /* bytes of one record; longer output is split */

#define RUNLOG_RESERVE (512 << 10) /* bytes; a WAL page per row of a run, and the record, fit */

enum runlog_stream {
	RUNLOG_OUT = 1,
	RUNLOG_ERR = 2,
	RUNLOG_NOTE = 3,    /* Airlock's own line, without newline */
	RUNLOG_DROPPED = 4, /* payload: u64 bytes of output missing here */
	RUNLOG_END = 5,	    /* payload: u32 exit status of the run; nothing follows */
};

struct runlog {
	int fd;		  /* owned; -1: no log */
	uint64_t limit;	  /* payload bytes of output; 0: none */
	uint64_t end;	  /* file length that is good */
	uint64_t payload; /* output bytes kept */
	uint64_t dropped; /* all output bytes not kept */
	uint64_t pending; /* of these, not yet marked in the file */
	int reserve_fd;	  /* nameless file of RUNLOG_RESERVE bytes, -1: none or given back */
	bool full;	  /* the disk was full: nothing more is tried */
	bool headed;	  /* the magic is in the file */
	int error;	  /* errno of the last failed write, 0 */
};

/* Creates the file (must not exist, 0600). limit 0: no limit. */
int runlog_create(struct runlog *l, const char *path, uint64_t limit, struct err *e);
/* Opens one that another process left, to go on behind its last whole record. */
int runlog_append(struct runlog *l, const char *path, struct err *e);
/* Output. Never fails; see above. */
void runlog_write(struct runlog *l, enum runlog_stream s, int64_t time_ns, const void *p, size_t n);
/* Our own line; kept beyond the limit. */
void runlog_note(struct runlog *l, int64_t time_ns, const char *text);
/* Marks what is missing and the end of the run. */
void runlog_end(struct runlog *l, int64_t time_ns, uint32_t exit_status);
void runlog_close(struct runlog *l);

struct runlog_record {
	enum runlog_stream stream;
	int64_t time_ns;
	size_t n;
	const uint8_t *p; /* in the reader's buffer, valid until the next call */
};

struct runlog_reader {
	int fd;		 /* borrowed */
	uint64_t offset; /* of the next record; 0 at first: the head is checked */
	uint8_t *buf;	 /* owned */
	size_t cap;
};

void runlog_reader_init(struct runlog_reader *r, int fd, uint64_t offset);
void runlog_reader_done(struct runlog_reader *r);
/* 1 record; 0 no whole record here (yet); -ESTALE file is shorter than the offset; -EPROTO not a
 * run log or garbage at the offset; errno. */
int runlog_next(struct runlog_reader *r, struct runlog_record *ret, struct err *e);

#endif
