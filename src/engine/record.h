/* record.h: the JSON record of a run, documented field by field in docs/record.md. */
#ifndef AIRLOCK_ENGINE_RECORD_H
#define AIRLOCK_ENGINE_RECORD_H

#include "engine/command.h"

struct json_t;
struct history;
struct request;
struct run_outcome;
struct transfer;
struct unpack_report;

/* Heap JSON, one object with a final newline; NULL: out of memory. */
char *record_text(const struct request *q, const struct run_outcome *o);
/* Writes run_dir/record.json; a failure is not the run's. */
void record_save(const char *run_dir, const char *text);
/* What became of the commits, as the record has it; JSON null when there was nothing to ask. */
struct json_t *record_history(const struct history *h);
/* Numbers of paths by action; what became of the mappings, an array. */
struct json_t *record_counts(const struct unpack_report *u);
struct json_t *record_maps(const struct transfer *t);
/* How the command ended, as the record says it. */
const char *record_end_name(enum command_end end);

#endif
