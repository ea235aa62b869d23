/* hostkey.h: which host key a machine shows, for a person to compare: nothing is accepted by that, and nothing is sent. */
#ifndef AIRLOCK_PROVIDER_SSH_HOSTKEY_H
#define AIRLOCK_PROVIDER_SSH_HOSTKEY_H

#include <stddef.h>

#include "provider/ssh/target.h"

#define SSH_HOSTKEY_MAX 128

/*
 * Asks ssh itself, so that its configuration and the machines on the way hold as ever: "ssh-ed25519 SHA256:...", printable; "" where it
 * cannot be told. Takes a connection's time.
 */
void ssh_hostkey(const struct ssh_target *t, char out[SSH_HOSTKEY_MAX]);

#endif
