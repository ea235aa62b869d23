/*
 * packer.h: the one pack that may run, as a forked process of pid 1.
 *
 * The packer says its result over a SOCK_SEQPACKET pair and ends; an end without a result is reported as ECANCELED.
 */
#ifndef AIRLOCK_GUEST_PACKER_H
#define AIRLOCK_GUEST_PACKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/outbox.h"

struct packer {
	uint32_t id;
	int ctl;   /* -1: none runs */
	pid_t pid; /* 0 once reaped */
};

/* What is packed. */
struct pack_place {
	int tree;  /* an overlay's upper layer, or with an index a whole tree; -1: none */
	int index; /* of delta.h; -1: the tree is a layer */
};

/* place and out are borrowed. 0, or negative errno. */
int packer_start(struct packer *p, uint32_t id, const struct pack_place *place, int out);
/* Reads what it says; the last event goes out with it. */
void packer_hear(struct packer *p, struct outbox *o);
void packer_kill(const struct packer *p);

#endif
