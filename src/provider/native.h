/*
 * native.h: shared by the files of the native provider; no one else's business.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_H
#define AIRLOCK_PROVIDER_NATIVE_H

#include <stdint.h>
#include <sys/types.h>

#include "provider/guestlink.h"
#include "provider/native/fill.h"
#include "provider/plan.h"
#include "provider/provider.h"

/* One sandbox, seen from airlock: the socket to its airlock-launch. */
struct native {
	struct sandbox sb;
	struct guestlink link;
	int guest_pidfd;	      /* -1 before READY */
	int socket[PLAN_SOCKETS_MAX]; /* of its network, that nobody has taken; owned */
	unsigned sockets;
	bool has_sockets; /* launch can be asked for some */
	pid_t child;	  /* airlock-launch, if this process started it; 0: attached */
};

/* native_start.c: the provider's acquire and attach, and what else they need. */
int native_acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
int native_attach(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
void native_free(struct native *n);
/* Waits for the end of an airlock-launch that this process started, killing it first if `force`. */
void native_reap(struct native *n, bool force);
/* The deadline `ms` from now. */
int64_t native_after(int64_t ms);

/* From what the engine wants to a plan that plan_check has passed. Release with plan_done. */
int native_plan(const struct sandbox_spec *s, struct plan *ret, struct err *e);
/* WITHOUT_OVERLAY: fills lease_dir/upper with what the layers show together. */
int native_copy_layers(const struct plan *p, struct err *e);

#endif
