/*
 * again.h: what airlock does for a session whose connection is cut (wire/rejoin.h): it starts another ssh each time that airlock-remote asks for
 * one, and tells the person once that it is away and once that it is back.
 */
#ifndef AIRLOCK_PROVIDER_SSH_AGAIN_H
#define AIRLOCK_PROVIDER_SSH_AGAIN_H

#include "provider/ssh/session.h"

/* ssh for this session; *ret_in and *ret_out: its standard input and output, the caller's. x->ssh is the process. */
int ssh_again_start(struct ssh_session *x, int *ret_in, int *ret_out, struct err *e);
/* From now on a cut is waited out, for as long as the target says. */
int ssh_again_keep(struct ssh_session *x, const struct sandbox_spec *s, struct err *e);
/* The session is lost for good (enum link_end); sb.why says why. */
void ssh_again_over(struct ssh_session *x, uint32_t how);
/* It is ended from here; nothing to say unless it is away. */
void ssh_again_give_up(struct ssh_session *x);
/* 1: it was about this. 0: something else. */
int ssh_again_hear(struct ssh_session *x, const struct frame *f);

#endif
