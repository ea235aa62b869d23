/*
 * remote.h: what airlock-remote and the guest on another machine say to each other, beside the messages of guest.h.
 *
 * One byte stream each way (a session of ssh) carries frames (frame.h). MX_* frames are channels: the bytes of descriptors
 * that cannot travel themselves. Everything else is RM_*, or a request or event of guest.h as it is. The order of a
 * session: RM_HELLO; RM_OPEN, RM_OPENED; perhaps RM_LAND, RM_LANDED; RM_START, GM_READY; then commands; GM_SHUTDOWN, RM_ENDED.
 *
 * What comes from the other machine is untrusted, as from any guest.
 */
#ifndef AIRLOCK_WIRE_REMOTE_H
#define AIRLOCK_WIRE_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

#define REMOTE_PROTOCOL 1
/* argv[1] of airlock-guest as the twin on another machine: the stream is its standard input and output. */
#define REMOTE_WORD "remote"
/* Below the environment's directory there; beside it a .gitignore that hides it. */
#define REMOTE_RUNS ".airlock-runtime/runs"

enum remote_msg {
	RM_HELLO = 96,	/* guest: u32 protocol, u32 uid, string name of the machine */
	RM_OPEN = 97,	/* struct rm_open: which run's directory */
	RM_OPENED = 98, /* guest: u32 1: the workspace is there already (a run that is recovered) */
	RM_LAND =
	    99, /* u32 id; a channel: u64 length and bytes of the manifest, then a tar stream */
	RM_LANDED = 100, /* guest: struct rm_fault; errno 0: it is all there */
	RM_START = 101,	 /* empty: GM_READY follows */
	RM_REMOVED =
	    102, /* guest, for RM_OPEN with RO_REMOVE: nothing of the run is left; struct rm_cleaned */
	RM_FAULT = 103, /* guest: struct rm_fault; nothing follows */
	RM_ENDED = 104, /* guest: every process below it has ended; nothing follows */
	RM_LINK =
	    105, /* airlock-remote to airlock, last: u32 enum link_end, bytes of ssh's stderr */
	RM_SETUP = 106, /* airlock to airlock-remote, first: struct rm_setup and descriptors */

	MX_OPEN = 128,	/* u32 channel, u32 group, u8 enum mux_flags; the opener's numbers rise */
	MX_DATA = 129,	/* u32 channel, bytes */
	MX_EOF = 130,	/* u32 channel: no more bytes */
	MX_STOP = 131,	/* u32 channel: nobody reads them any more */
	MX_ROOM = 132,	/* u32 channel, u32 bytes more that may be sent */
	MX_ALIVE = 133, /* empty */
};

#define MX_FIRST MX_OPEN
#define MX_LAST MX_ALIVE

/* How a session ended, as far as airlock-remote can tell. */
enum link_end {
	LINK_NO_SHELL = 1, /* the stream ended, or time did, before our script spoke */
	LINK_SILENT,	   /* the same, by time */
	LINK_NOISE,	   /* too many bytes that are not ours */
	LINK_REFUSED,	   /* the script said why it cannot go on: the bytes are its word */
	LINK_CUT,	   /* later: the stream ended */
	LINK_BROKEN,	   /* bytes that break the protocol */
	LINK_ENDED,	   /* in order */
};

#define RO_REMOVE 1u /* end who holds it, remove the run's directory */
#define RO_SHARED 2u /* of a kept lease: beside other sessions of it */
#define RO_CLEAN \
	4u /* with RO_REMOVE: no run's; our programs, and directories of runs that hold nothing */
#define RO_RESUME 8u /* make nothing: RM_OPENED 0, if the run's directory is not there */

struct rm_open {
	uint32_t flags;
	char *root;  /* the environment's directory: absolute, normal */
	char *lease; /* a name */
};

/* How many of each. held: their work is there, or not proven to be elsewhere; busy: a session goes on. */
struct rm_cleaned {
	uint32_t programs, runs, held, busy;
};

#define RM_WHAT_MAX 400

struct rm_fault {
	uint32_t error;		    /* errno */
	char what[RM_WHAT_MAX + 1]; /* which step; bytes, to be shown printable */
};

/*
 * Descriptors of RM_SETUP, in this order: ssh's stdin, stdout, stderr, the guest program. The hash is that of the program, as
 * its name on the remote; machine as uname -s and -m say it.
 */
#define RM_SETUP_FDS 4
struct rm_setup {
	char *hash, *machine;
	uint64_t size;
	/* How long the login shell has to answer, the guest program to arrive, and the guest may be silent. */
	uint32_t shell_ms, upload_ms, silent_ms;
};

/* As in guest.h: every put 0, -E2BIG, -EINVAL or -ENOMEM, every get exact. Release what a get filled with its done. */
int rm_open_put(struct buf *b, const struct rm_open *m);
int rm_open_get(struct view p, struct rm_open *ret);
void rm_open_done(struct rm_open *m);
int rm_cleaned_put(struct buf *b, const struct rm_cleaned *m);
int rm_cleaned_get(struct view p, struct rm_cleaned *ret);
int rm_fault_put(struct buf *b, uint32_t error, const char *what);
int rm_fault_get(struct view p, struct rm_fault *ret);
int rm_setup_put(struct buf *b, const struct rm_setup *m);
int rm_setup_get(struct view p, struct rm_setup *ret);
void rm_setup_done(struct rm_setup *m);

#endif
