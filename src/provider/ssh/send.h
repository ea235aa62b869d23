/*
 * send.h: a workspace on its way to another machine, as one stream (wire/remote.h, RM_LAND).
 *
 * The manifest comes first; the other side says what of it is there already (struct rm_want), which is a hint and no more: it
 * costs it its own run if it lies. Then what is wanted of the list, file by file out of the base layers that hold the bytes, then the layer with the
 * repository, which no manifest lists. So what is sent is what native sandboxes see, and nothing of a path of this
 * machine is in it. Memory: one buffer.
 */
#ifndef AIRLOCK_PROVIDER_SSH_SEND_H
#define AIRLOCK_PROVIDER_SSH_SEND_H

#include "provider/provider.h"

/*
 * s names manifest, layers and cancel. out and want do not block, want brings struct rm_want; SIGPIPE must be ignored. 0, -EPIPE: nobody takes it, -ECANCELED,
 * -ETIMEDOUT: it took nothing for REMOTE_TREE_MS, negative errno.
 */
int ssh_send(const struct sandbox_spec *s, int out, int want, struct err *e);
/* The tar stream alone, for a tar there. */
int ssh_send_tar(const struct sandbox_spec *s, int out, struct err *e);

#endif
