/* host.h: the life of airlock-bridge. */
#ifndef AIRLOCK_BRIDGE_HOST_H
#define AIRLOCK_BRIDGE_HOST_H

/*
 * Serves the client on the connected socket fd (taken) until it says stop or goes away. 0, or a negative
 * errno that the client was told about.
 */
int bridge_serve(int fd);

#endif
