/* changes_internal.h: between changes.c and changes_renames.c; no one else's business. */
#ifndef AIRLOCK_ENGINE_CHANGES_INTERNAL_H
#define AIRLOCK_ENGINE_CHANGES_INTERNAL_H

#include "engine/changes.h"

void changes_shown_done(struct shown *s);
/* Makes one path of two where a file was renamed; afterwards the paths are in no order. */
int changes_find_renames(struct changes *c, struct err *e);

#endif
