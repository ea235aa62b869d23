/*
 * unpack_intake.h: the member in work of the stream that is read. Part of door 1.
 *
 * unpack_stage.c reads the stream and has one of these for as long; unpack_intake.c takes what the reader finds in
 * it, in its order: a member, its data, its end. Functions return 0 or a negative errno with e; -EBADMSG: the
 * stream is rejected (u->rule, u->rule_text).
 */
#ifndef AIRLOCK_SYNC_UNPACK_INTAKE_H
#define AIRLOCK_SYNC_UNPACK_INTAKE_H

#include <sodium.h>

#include "policy/member.h"
#include "sync/unpack_server.h"
#include "wire/tar.h"

#define INTAKE_SMALL \
	(64 << 10) /* files up to this are compared with the manifest before they are staged */

struct intake {
	struct unpack *u;
	struct tar_reader *tar;
	struct members *judge;
	uint8_t *in;
	int raw; /* owned: first RAW_KEEP_MAX bytes, kept if the stream is rejected */
	uint64_t raw_len;
	uint64_t again;			    /* of those that were sent once more */
	uint64_t members, bytes, unchecked; /* bytes staged since the last look at free space */
	int64_t told_ns, window_ns;	    /* window: of the look at how fast the stream is */
	uint64_t window_bytes;
	/* the member in work */
	struct change c;
	bool wanted;		    /* content is to be kept */
	bool links_asked, no_links; /* of the staging place's file system */
	bool have_base;		    /* base is the manifest's entry of c.path */
	struct manifest_entry base;
	crypto_generichash_state hash;
	struct err *late; /* where refuse_late puts its reason */
	int late_r;	  /* what it returned last */
	uint64_t at;	  /* end of what was hashed */
	bool staged;	  /* the writer has it in work; else it is small */
	/* the file before it: the packer sends one again that changed while it was read */
	char last[PATH_MEMBER_MAX + 1];
	size_t last_len; /* 0: the member before was no file */
	uint64_t last_size, last_id;
	char *small;
	size_t small_len;
};

/* The member that a rejection is about. */
void intake_blame(struct unpack *u, struct view path);
int intake_reject(struct intake *k, const char *rule, const char *text, struct view path,
		  struct err *e);
/* k->c into the list. */
int intake_add(struct intake *k, struct err *e);
/* The manifest's entry of k->c. */
int intake_find_base(struct intake *k, struct err *e);
/* k->c does not come in, and what came of its name before does not either. target: told with it. */
int intake_refuse(struct intake *k, const char *rule, struct view target, struct err *e);

int intake_member(struct intake *k, const struct tar_member *m, struct err *e);
int intake_data(struct intake *k, const struct tar_out *o, struct err *e);
/* Of a member whose content is kept. */
int intake_end(struct intake *k, struct err *e);

#endif
