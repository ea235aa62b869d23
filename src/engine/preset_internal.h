/*
 * preset_internal.h: what the parts of a preset share: its file (preset.c), its program (preset_program.c), its effect
 * (preset_apply.c). Nobody else includes it.
 */
#ifndef AIRLOCK_ENGINE_PRESET_INTERNAL_H
#define AIRLOCK_ENGINE_PRESET_INTERNAL_H

#include "engine/preset.h"

/* A path of a preset, with the caller's home for "~". Heap; NULL: no home, or no memory. */
char *preset_expand(const char *place);
/* A line for the person: fmt, a, and in brackets b if there is one. 0 or -ENOMEM. */
int preset_grant(char ***grants, const char *fmt, const char *a, const char *b);
/*
 * Shows the program read-only inside with what it needs beside itself: its node_modules or store, its interpreter.
 * *ret_inside: its path there; heap, also of use after an error.
 */
int preset_bind(struct request *q, const char *real, char **ret_inside, char ***grants,
		struct err *e);

#endif
