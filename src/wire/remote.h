/*
 * remote.h: what airlock-remote and the guest on another machine say to each other, beside the messages of guest.h.
 *
 * One byte stream each way (a session of ssh) carries frames (frame.h). MX_* frames are channels: the bytes of descriptors
 * that cannot travel themselves. Everything else is RM_*, or a request or event of guest.h as it is. The order of a
 * session: RM_HELLO; RM_OPEN, RM_OPENED; perhaps RM_LAND, RM_LANDED; RM_START, GM_READY; then commands; GM_SHUTDOWN, RM_ENDED.
 * A session outlives a cut of its stream: rejoin.h.
 *
 * What comes from the other machine is untrusted, as from any guest.
 */
#ifndef AIRLOCK_WIRE_REMOTE_H
#define AIRLOCK_WIRE_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

#define REMOTE_PROTOCOL 4
/* argv[1] of airlock-guest as the twin on another machine: the stream is its standard input and output. */
#define REMOTE_WORD "remote"
/* Below the environment's directory there; beside it a .gitignore that hides it. */
#define REMOTE_RUNS ".airlock-runtime/runs"
/* Of faults: steps before anything of the run is there. */
#define REMOTE_OPEN_ROOT "open the directory"
#define REMOTE_MAKE_RUNS "make " REMOTE_RUNS " in"
/* Of RM_LANDED with EAGAIN: its disk was full, and trees that next runs start from are removed now. Once more may do. */
#define REMOTE_MADE_ROOM "make room for"
#define REMOTE_NO_PROGRAMS "use the programs of" /* of a fault: somebody has just removed them */
/* Beside them, trees that the next run with the same workspace starts from: nobody works in them. */
#define REMOTE_BASES "bases"

/* In a run's directory, while a session without a guest lives there: as old as its last sign of life. */
#define REMOTE_PLAIN_ALIVE "alive"

enum remote_msg {
	RM_HELLO = 96,	/* guest: u32 protocol, u32 uid, string name of the machine */
	RM_OPEN = 97,	/* struct rm_open: which run's directory */
	RM_OPENED = 98, /* guest: u32 1: the workspace is there already (a run that is recovered) */
	RM_LAND =
	    99, /* u32 id, string name of a base or "", struct rm_index that it had; two channels, see struct rm_want */
	RM_LANDED =
	    100, /* guest: struct rm_fault; errno 0: it is all there, and struct rm_index of it */
	RM_START = 101, /* empty: GM_READY follows */
	RM_REMOVED =
	    102, /* guest, for RM_OPEN with RO_REMOVE: nothing of the run is left, but for its base; struct rm_cleaned */
	RM_FAULT = 103, /* guest: struct rm_fault; nothing follows */
	RM_ENDED = 104, /* guest: every process below it has ended; nothing follows */
	RM_LINK =
	    105, /* airlock-remote to airlock, last: u32 enum link_end, bytes of ssh's stderr */
	RM_SETUP = 106, /* airlock to airlock-remote, first: struct rm_setup and descriptors */

	RM_BOX = 107, /* struct rm_box (remote_box.h): what follows runs in a sandbox there */
	RM_BOXED =
	    108, /* guest: u32 Landlock ABI, u32 GR_* limits in force, u32 1: its ids are nobody's there */
	RM_NOT_BOXED = 109, /* guest: struct rm_not_boxed; nothing was started */

	MX_OPEN = 128,	/* u32 channel, u32 group, u8 enum mux_flags; the opener's numbers rise */
	MX_DATA = 129,	/* u32 channel, bytes */
	MX_EOF = 130,	/* u32 channel: no more bytes */
	MX_STOP = 131,	/* u32 channel: nobody reads them any more */
	MX_ROOM = 132,	/* u32 channel, u32 bytes more that may be sent */
	MX_ALIVE = 133, /* u64 bytes of the other side's stream that have come */
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
	LINK_LATE,	   /* cut, and not made again within the grace */
	LINK_GONE, /* cut, and the guest that ought to wait there does not: the bytes say how that was learnt */
};

#define RO_REMOVE 1u /* end who holds it, remove the run's directory */
#define RO_SHARED 2u /* of a kept lease: beside other sessions of it */
#define RO_CLEAN \
	4u /* with RO_REMOVE: no run's; our programs, and directories of runs that hold nothing */
#define RO_IN_PLACE \
	16u /* nothing lands: commands work in the root itself, alone; RM_OPENED 1, RM_START may follow */
#define RO_RESUME 8u /* make nothing: RM_OPENED 0, if the run's directory is not there */

struct rm_open {
	uint32_t flags;
	char *root;  /* the environment's directory: absolute, normal */
	char *lease; /* a name */
	char *
	    base; /* with RO_REMOVE: the run's tree is kept under this name for the next one; "": it is not */
	uint32_t owner; /* of what lands, where the account is root: both ids; 0: the account */
};

/*
 * What of a manifest is to be sent. Channel 1 (to the guest): u64 length and bytes of the manifest; then it waits. Channel 2 (from the
 * guest): u8 0, everything; or u8 1, u64 entries, a bit for each in the manifest's order, u32 parts, struct rm_part each. Then
 * channel 1 goes on: a byte for each part, 1: sent from `have` on, 0: from its beginning; a tar stream of what is wanted.
 */
#define RM_PARTS_MAX 16
#define RM_PART_HASH 32

struct rm_part {
	uint64_t entry, have;	    /* rising; the first `have` bytes of that file are there */
	uint8_t hash[RM_PART_HASH]; /* BLAKE2b of those bytes */
};

/* What the index of a landed tree is known by (guest/vouch.h); all zeros: none is. */
struct rm_index {
	uint8_t sum[RM_PART_HASH];
};

struct rm_want {
	uint64_t count;
	uint8_t *bits; /* owned; NULL: everything */
	size_t parts;
	struct rm_part part[RM_PARTS_MAX];
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

#define RM_BASE_MAX 64
/* A name of a base, or none. */
bool rm_base_fits(const char *s);
/* As in guest.h: every put 0, -E2BIG, -EINVAL or -ENOMEM, every get exact. Release what a get filled with its done. */
int rm_open_put(struct buf *b, const struct rm_open *m);
int rm_open_get(struct view p, struct rm_open *ret);
void rm_open_done(struct rm_open *m);
/* The parts alone: u32 how many, then each. */
int rm_parts_put(struct buf *b, const struct rm_want *m);
/* count and bits must be there: an entry that is no wanted one is -EPROTO. p: after the number. */
int rm_parts_get(struct view p, uint32_t parts, struct rm_want *ret);
#define RM_PART_BYTES (16 + RM_PART_HASH)
bool rm_want_has(const struct rm_want *m, uint64_t entry);
void rm_want_done(struct rm_want *m);
int rm_cleaned_put(struct buf *b, const struct rm_cleaned *m);
int rm_cleaned_get(struct view p, struct rm_cleaned *ret);
int rm_fault_put(struct buf *b, uint32_t error, const char *what);
int rm_fault_get(struct view p, struct rm_fault *ret);
int rm_landed_put(struct buf *b, uint32_t error, const char *what, const struct rm_index *x);
int rm_landed_get(struct view p, struct rm_fault *ret, struct rm_index *ret_index);
int rm_setup_put(struct buf *b, const struct rm_setup *m);
int rm_setup_get(struct view p, struct rm_setup *ret);
void rm_setup_done(struct rm_setup *m);

#endif
