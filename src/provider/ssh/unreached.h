/*
 * unreached.h: what a lease's directory says of its other machine to who looks without going there (engine/contact.h): that it was not
 * reached the last time, and why; and until when something may go on there that nobody here hears of any more.
 *
 * Of a kept lease, whose commands have a session each, it is the last word of any of them.
 */
#ifndef AIRLOCK_PROVIDER_SSH_UNREACHED_H
#define AIRLOCK_PROVIDER_SSH_UNREACHED_H

#include "provider/provider.h"

void unreached_note(const char *lease_dir, const char *why);
/* It was reached. ended: nothing goes on there but what is heard of. */
void unreached_clear(const char *lease_dir, bool ended);
/* From now on, for no longer than that, and what it takes over there to notice a link that went down without a word. */
void unreached_goes_on(const char *lease_dir, uint64_t ms);
/* As r, of who went there for this lease, says it, with its reason in e. Returns r. */
int unreached_remember(const struct sandbox_spec *s, int r, const struct err *e);

#endif
