/*
 * beside.h: what of a start the kernel keeps waiting, done beside the rest.
 *
 * A network namespace with its loopback is half of what all namespaces cost, and a root that is detached waits for a
 * grace period (0.3 ms, on a busy machine ten times that). Both are the work of a second task that shares the child's
 * memory, descriptors and directories; the child meanwhile builds the tree, then sets its limits and loads its filter.
 * On a machine with more work than processors there is no second task, and the child does all itself.
 * errno is shared as well: no call of the second task is expected to fail.
 *
 * Sockets of the namespace, for the bridges of the sandbox's runs (bridge/h1server.h), are made here too, before anything foreign
 * runs: a socket belongs to the network that it was made in, whoever binds it later and wherever.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_BESIDE_H
#define AIRLOCK_PROVIDER_NATIVE_BESIDE_H

#include <stdbool.h>
#include <sys/types.h>

#include "provider/native/step.h"

struct beside {
	bool wants_net;
	bool alone;	   /* no second task: the child does it itself */
	int made, pivoted; /* events; like net close-on-exec, and never closed before */
	int net;	   /* the namespace */
	unsigned wants_sockets;
	int socket[PLAN_SOCKETS_MAX]; /* of that namespace */
	pid_t pid;
	struct failure failure; /* the second task's */
};

/*
 * Whether a second task would be of help now. One that waits for a processor is none, and the child would wait for it: a tenth
 * of a start at load 13 on two.
 */
bool beside_helps(void);
/*
 * helps: what the function above said. stack: top of one for the second task, in memory that lives as long as the child. Must be called while the descriptors
 * up to GUEST_FD_UPPER are taken. This and what follows: 0, or -1 and f filled.
 */
int beside_start(struct beside *b, const struct plan *p, bool helps, void *stack,
		 struct failure *f);
/* Waits for the namespace and enters it. */
int beside_enter_net(struct beside *b, struct failure *f);
/* Then: its sockets go to launch, which waits at the other end of sync. */
int beside_hand_over(struct beside *b, int sync, struct failure *f);
/* The old root lies over the current directory, which stays where it is: detach it. */
void beside_pivoted(struct beside *b);
/* Waits until the second task is gone; fails unless it has done all. */
int beside_end(struct beside *b, struct failure *f);

#endif
