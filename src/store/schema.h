/* schema.h: private to store/: the numbered migrations. Append only: a released step never changes. */
#ifndef AIRLOCK_STORE_SCHEMA_H
#define AIRLOCK_STORE_SCHEMA_H

/* Highest version this program knows. */
int schema_latest(void);
/* SQL that leads from version `from` to from + 1. */
const char *schema_step(int from);

#endif
