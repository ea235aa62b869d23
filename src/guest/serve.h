/*
 * serve.h: pid 1 of a sandbox.
 *
 * The guest may use base, wire and os/chan: it is built from those sources into a static program.
 * It is no boundary control: sandbox code runs with the same authority and may kill or confuse all
 * of it but pid 1. What it says is judged by the host; what it fails to say is covered by the
 * launcher, which can always end the whole process namespace.
 *
 * One thread, one poll loop, nothing that waits: neither for the launcher nor for a command.
 * Memory is bounded: requests are not read while events wait to be sent (OUTBOX_HIGH), signals to a
 * command are kept as a set.
 */
#ifndef AIRLOCK_GUEST_SERVE_H
#define AIRLOCK_GUEST_SERVE_H

#include "guest/packer.h"

/*
 * Serves the launcher's socket until it asks for the end or goes away, then ends every process
 * below this one and reaps them. Its descriptors are owned. Returns
 * the exit status: 0, or 3 after a protocol error.
 */
int serve(int sock, const struct pack_place *place);

#endif
