/* explain.h: why there is no session, in words: the object, the limit, what to do. */
#ifndef AIRLOCK_PROVIDER_SSH_EXPLAIN_H
#define AIRLOCK_PROVIDER_SSH_EXPLAIN_H

#include "base/err.h"
#include "provider/ssh/target.h"
#include "wire/remote.h"

/* Why the script there cannot bring up the guest, where a shell alone might do. */
enum ssh_refused {
	REFUSED_NOT,
	REFUSED_MACHINE,
	REFUSED_NOEXEC,
	REFUSED_ROOM,
	REFUSED_PLACE,
	REFUSED_TOOL
};
enum ssh_refused ssh_refusal(const char *said);
/*
 * how and said as in RM_LINK; said is foreign: ssh's messages, perhaps mixed with what the remote prints. `up`: the guest
 * had spoken, so the connection was good once. Always negative.
 */
int ssh_explain(const struct ssh_target *t, uint32_t how, const char *said, bool up, struct err *e);
/* Refused before the guest had made anything there. */
bool ssh_fault_unmade(const struct rm_fault *f);
/* A step of the guest there that failed. Always negative. */
int ssh_explain_fault(const struct ssh_target *t, const struct rm_fault *f, struct err *e);

#endif
