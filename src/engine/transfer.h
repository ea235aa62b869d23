/* transfer.h: the two directions of a workspace, on behalf of a lease. */
#ifndef AIRLOCK_ENGINE_TRANSFER_H
#define AIRLOCK_ENGINE_TRANSFER_H

#include "engine/leasespec.h"
#include "engine/ui.h"
#include "sync/gitback.h"

/* What became of one mapping (maps.h). */
struct map_result {
	char *src, *dst, *dir; /* owned; dir: what lies with the run */
	bool file;
	bool done; /* rep is filled */
	struct unpack_report rep;
	struct err err; /* why it did not come back; ERR_NONE: it did */
};

struct transfer {
	struct sync_in_result in;
	struct unpack_report out;
	bool in_done, out_done;
	bool review;  /* `out` says what an apply would do; nothing was written */
	bool applied; /* of an apply: what conflicts goes on waiting */
	uint64_t members, unreadable, left_out; /* as the packer said */
	uint64_t
	    withheld; /* unreadable ones that the ignore rules would have let through: lost work */
	struct history history;
	struct map_result *maps; /* owned; in the order given */
	size_t maps_len;
};

/* What a transfer out is about; all borrowed. */
struct transfer_job {
	struct state *st;
	struct sandbox *sb;
	const struct lease_spec *spec;
	const struct lease_row *lease;
	const char *run_dir;
	const struct run_ui *ui;
	int baseline; /* of transfer_turn; -1: none, and the mappings have none either */
};

void transfer_done(struct transfer *t);
/* Fills t->in and the spec's layers and manifest. Stops at the first interrupt. */
int transfer_in(struct state *st, const struct request *q, struct lease_spec *s,
		const struct run_ui *ui, struct transfer *t, struct err *e);
/*
 * A kept sandbox's transfers go one after the other, under a lock on leases/<id>/<name> ("baseline"; a mapping
 * has one of its own, taken after it): each brings what is there when its turn comes, also of commands that
 * still run, and moves the baseline on. *ret: the turn, which lasts until it is closed; -1 where nothing is kept.
 */
int transfer_turn(const struct transfer_job *j, const char *name, int *ret, struct err *e);
/*
 * Packs inside, judges and publishes outside. Heeds only the second interrupt: the first one may be
 * what brought us here. -EBADMSG: rejected, nothing written. 0 with t->withheld: not all of the work is
 * here, so the storage must stay (transfer_withheld_text says why). -ECONNRESET: the sandbox went away before the packer's last word.
 */
int transfer_out(const struct transfer_job *j, struct transfer *t, struct err *e);
/* A device number of when the sandbox was made, where it still means something; else 0. */
uint64_t transfer_device(const struct lease_spec *s, uint64_t dev);
/* What could not come, why, what to do; one line. */
void transfer_withheld_text(const struct transfer *t, const char *run, char *out, size_t size);

#endif
