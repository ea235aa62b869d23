/*
 * link.h: airlock-remote, one session of ssh between airlock here and a guest on another machine.
 *
 * Started by airlock with a channel as standard input. RM_SETUP brings ssh's standard streams (airlock has started ssh and
 * waits for it) and the guest program; then the process confines itself, before it reads the first foreign byte: no
 * file, no program, no socket. It makes sure that the guest is there (script.h), starts it, and from then on hands requests
 * and events on, and carries the bytes of the descriptors that come with requests (os/mux.h).
 *
 * It hands on to airlock only the events that remote.h and guest.h list, decoded by airlock as any guest's. When airlock
 * goes away the remote is told to end everything; when the connection ends, airlock is told how (RM_LINK).
 */
#ifndef AIRLOCK_PROVIDER_SSH_LINK_H
#define AIRLOCK_PROVIDER_SSH_LINK_H

/* Serves the channel until the end. 0, or negative errno. */
int link_serve(int sock);

#endif
