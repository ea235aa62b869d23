/* sql.h: private to store/: statements with bound values, one error style, transactions. */
#ifndef AIRLOCK_STORE_SQL_H
#define AIRLOCK_STORE_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/schema.h"
#include "store/store.h"

/*
 * Statements of literals are kept compiled: compiling is most of what a small query costs. A literal is known
 * by its address, so its text must have static storage; sql_prepare says so.
 */
#define SQL_KEEP 64

struct sql_kept {
	const char *text;
	sqlite3_stmt *st;
	bool busy;
};

struct db {
	sqlite3 *db;
	char *path;
	enum schema schema;
	struct sql_kept kept[SQL_KEEP];
};

/* Turns SQLite's result into an error that names the file and the remedy. */
int sql_fail(struct db *s, int rc, const char *what, struct err *e);
int sql_exec(struct db *s, const char *sql, struct err *e);
/* Takes the write lock. Pair with sql_end(s, r, e): commits when r >= 0, else rolls back. */
int sql_begin(struct db *s, struct err *e);
int sql_end(struct db *s, int r, struct err *e);

struct sql {
	struct db *s;
	sqlite3_stmt *st;
	struct sql_kept *kept; /* where st goes back to; NULL: it is this one's own */
	const char *what;      /* for messages */
};

/*
 * fmt binds the arguments to ?1, ?2, ...: 's' const char * (NULL allowed), 'i' int64_t.
 * `what` is a literal such as "add run". text must have static storage: it is not copied.
 */
int sql_prepare(struct db *s, struct sql *q, const char *what, struct err *e, const char *text,
		const char *fmt, ...);
/* 1 row, 0 done, negative. */
int sql_step(struct sql *q, struct err *e);
void sql_done(struct sql *q);
#define _cleanup_sql_ __attribute__((cleanup(sql_done)))
int64_t sql_i64(struct sql *q, int col);
/* Column col until the next step; NULL column gives NULL. */
const char *sql_text(struct sql *q, int col);
/* Copies column col into out; too long is cut. NULL becomes "". */
void sql_copy(struct sql *q, int col, char *out, size_t n);
/* Heap copy; NULL column gives NULL. -ENOMEM sets *oom. */
char *sql_dup(struct sql *q, int col, bool *oom);
/* One statement without rows inside the caller's transaction or alone; returns changed rows. */
int sql_run(struct sql *q, struct err *e);

/* sql_prepare and sql_run in one. */
int sql_change(struct db *s, const char *what, struct err *e, const char *text, const char *fmt,
	       ...);
/* First column of the first row; *ret 0 without a row. 1 row, 0 none, negative. */
int sql_number(struct db *s, const char *what, int64_t *ret, struct err *e, const char *text,
	       const char *fmt, ...);

#endif
