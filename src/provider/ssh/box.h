/*
 * box.h: the sandbox of another machine's kernel (--remote-sandbox).
 *
 * Our launcher is sent there, draws up the same plan as here, judged by the same function, and builds it or says which step failed; then that
 * machine's layers are tried as 'airlock doctor --ssh --remote-sandbox' does, and nothing is run. What is in force is that machine's own word: whoever
 * owns it owns the sandbox as well.
 */
#ifndef AIRLOCK_PROVIDER_SSH_BOX_H
#define AIRLOCK_PROVIDER_SSH_BOX_H

#include "provider/ssh/session.h"

/* The guest serves, and no command runs. From 0 on commands run in the sandbox; x->sb.isolation says what is in force. */
int ssh_box(struct ssh_session *x, const struct sandbox_spec *s, struct err *e);

#endif
