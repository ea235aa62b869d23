/*
 * front.h: the guest on another machine: what stands between the stream of ssh and serve.h there.
 *
 * It has the remote user's authority and isolates nothing by itself: a sandbox is airlock-launch's (front_box.h). Its standard input and output carry wire/remote.h. It makes the run's
 * directory and holds a lock on it, lets the workspace land, starts serve() as a child of its own, and from then on turns the
 * channels of the stream into the descriptors that serve() wants. Variables that only the remote knows (HOME, PATH,
 * ...) are added to what a command gets unless the host gave them.
 *
 * When the stream ends, nothing is heard for REMOTE_SILENT_MS, or TERM comes, every process below it is ended. Each of the two
 * processes does that also when the other one is killed. The run's directory stays: the work in it is not on the host yet.
 * A front that finds the lock taken asks its holder to end, and waits: who connects again takes over.
 */
#ifndef AIRLOCK_GUEST_FRONT_H
#define AIRLOCK_GUEST_FRONT_H

/* Until the end. Returns the exit status. */
int front(void);

#endif
