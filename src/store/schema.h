/*
 * schema.h: private to store/: the numbered migrations. Append only: a released step never changes.
 *
 * Two files, two schemas: what airlockd serves is kept out of the file that every `airlock run` opens, because
 * SQLite reads the whole schema at each opening and a start is measured in hundreds of microseconds.
 */
#ifndef AIRLOCK_STORE_SCHEMA_H
#define AIRLOCK_STORE_SCHEMA_H

enum schema { SCHEMA_STATE, SCHEMA_SERVER };

/* Highest version this program knows. */
int schema_latest(enum schema which);
/* SQL that leads from version `from` to from + 1. */
const char *schema_step(enum schema which, int from);

#endif
