#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "store/schema.h"
#include "store/sql.h"

int sql_fail(struct db *s, int rc, const char *what, struct err *e)
{
	const char *why = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);

	switch (rc & 0xff) {
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		return err_set(e, ERR_IO,
			       "%s: the state database %s is damaged (%s): move it away (mv %s "
			       "%s.bad); kept work stays in the directories beside it",
			       what, s->path, why, s->path, s->path);
	case SQLITE_FULL:
		return err_set(e, ERR_NO_SPACE,
			       "%s: no space left for the state database %s: free space on that "
			       "file system, or set XDG_STATE_HOME to another one",
			       what, s->path);
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return err_set(
		    e, ERR_PERMISSION,
		    "%s: the state database %s cannot be opened for writing (%s): make its "
		    "directory writable, or set XDG_STATE_HOME to one that is",
		    what, s->path, why);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(
		    e, ERR_CONFLICT,
		    "%s: another process has held the state database %s for more than %d s", what,
		    s->path, STORE_BUSY_MS / 1000);
	case SQLITE_CONSTRAINT:
		return err_set(e, ERR_EXISTS, "%s: it breaks a rule of the state database (%s)",
			       what, why);
	case SQLITE_NOMEM:
		return err_set(e, ERR_NOMEM, "%s: out of memory", what);
	case SQLITE_IOERR:
		/* A full disk shows up here too when the shared-memory file cannot grow. */
		return err_set(e, ERR_IO, "%s: state database %s: %s (error %d): is the disk full?",
			       what, s->path, why, rc);
	default:
		return err_set(e, ERR_INTERNAL, "%s: state database %s: %s", what, s->path, why);
	}
}

int sql_exec(struct db *s, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : sql_fail(s, rc, "state database", e);
}

int sql_begin(struct db *s, struct err *e)
{
	return sql_exec(s, "BEGIN IMMEDIATE", e);
}

int sql_end(struct db *s, int r, struct err *e)
{
	int c;

	if (r < 0) {
		(void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
		return r;
	}
	c = sql_exec(s, "COMMIT", e);
	if (c < 0)
		(void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return c < 0 ? c : r;
}

int db_begin(struct db *s, struct err *e)
{
	return sql_begin(s, e);
}

int db_end(struct db *s, int r, struct err *e)
{
	return sql_end(s, r, e);
}

/* 0, with a statement that nobody uses; compiled unless it is kept. */
static int obtain(struct db *s, struct sql *q, const char *text)
{
	struct sql_kept *k = &s->kept[((uintptr_t)text >> 4) % SQL_KEEP];
	int rc;

	if (k->text == text && !k->busy) {
		k->busy = true;
		q->kept = k;
		q->st = k->st;
		return SQLITE_OK;
	}
	rc = sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &q->st, NULL);
	if (rc != SQLITE_OK || k->busy)
		return rc;
	(void)sqlite3_finalize(k->st);
	*k = (struct sql_kept){text, q->st, true};
	q->kept = k;
	return SQLITE_OK;
}

static int prepare(struct db *s, struct sql *q, const char *what, struct err *e, const char *text,
		   const char *fmt, va_list ap)
{
	int rc;

	*q = (struct sql){.s = s, .what = what};
	rc = obtain(s, q, text);
	for (int i = 0; rc == SQLITE_OK && fmt[i]; i++) {
		if (fmt[i] == 'i')
			rc = sqlite3_bind_int64(q->st, i + 1, va_arg(ap, int64_t));
		else
			rc = sqlite3_bind_text(q->st, i + 1, va_arg(ap, const char *), -1,
					       SQLITE_TRANSIENT);
	}
	return rc == SQLITE_OK ? 0 : sql_fail(s, rc, what, e);
}

int sql_prepare(struct db *s, struct sql *q, const char *what, struct err *e, const char *text,
		const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = prepare(s, q, what, e, text, fmt, ap);
	va_end(ap);
	return r;
}

int sql_change(struct db *s, const char *what, struct err *e, const char *text, const char *fmt,
	       ...)
{
	_cleanup_sql_ struct sql q = {0};
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = prepare(s, &q, what, e, text, fmt, ap);
	va_end(ap);
	return r == 0 ? sql_run(&q, e) : r;
}

int sql_number(struct db *s, const char *what, int64_t *ret, struct err *e, const char *text,
	       const char *fmt, ...)
{
	_cleanup_sql_ struct sql q = {0};
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = prepare(s, &q, what, e, text, fmt, ap);
	va_end(ap);
	if (r == 0)
		r = sql_step(&q, e);
	*ret = r > 0 ? sql_i64(&q, 0) : 0;
	return r;
}

int sql_step(struct sql *q, struct err *e)
{
	int rc = sqlite3_step(q->st);

	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : sql_fail(q->s, rc, q->what, e);
}

void sql_done(struct sql *q)
{
	if (q->kept) {
		(void)sqlite3_reset(q->st);
		(void)sqlite3_clear_bindings(q->st);
		q->kept->busy = false;
	} else {
		(void)sqlite3_finalize(q->st);
	}
	q->st = NULL;
	q->kept = NULL;
}

int64_t sql_i64(struct sql *q, int col)
{
	return sqlite3_column_int64(q->st, col);
}

const char *sql_text(struct sql *q, int col)
{
	return (const char *)sqlite3_column_text(q->st, col);
}

void sql_copy(struct sql *q, int col, char *out, size_t n)
{
	const char *t = sql_text(q, col);

	(void)snprintf(out, n, "%s", t ? t : "");
}

char *sql_dup(struct sql *q, int col, bool *oom)
{
	const char *t = sql_text(q, col);
	char *d = t ? strdup(t) : NULL;

	if (t && !d)
		*oom = true;
	return d;
}

int sql_run(struct sql *q, struct err *e)
{
	int r = sql_step(q, e);

	return r < 0 ? r : sqlite3_changes(q->s->db);
}

int db_mark(struct db *s, struct db_mark *ret, struct err *e)
{
	int r = sql_number(s, "look for changes", &ret->others, e, "PRAGMA data_version", "");

	ret->own = sqlite3_total_changes64(s->db);
	return r < 0 ? r : 0;
}

int db_version(struct db *s, int *ret, struct err *e)
{
	_cleanup_sql_ struct sql q = {0};
	int r = sql_prepare(s, &q, "read schema version", e, "PRAGMA user_version", "");

	if (r == 0)
		r = sql_step(&q, e);
	if (r < 0)
		return r;
	*ret = (int)sql_i64(&q, 0);
	return 0;
}

static int too_new(struct db *s, int have, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE,
		       "the state database %s has schema %d, this program knows %d: it was written "
		       "by a newer airlock; use that one, or another XDG_STATE_HOME",
		       s->path, have, schema_latest(s->schema));
}

/* One step, one transaction: a crash leaves the old version or the new one. */
static int migrate_step(struct db *s, int from, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r = sql_begin(s, e);

	if (r < 0)
		return r;
	r = sql_exec(s, schema_step(s->schema, from), e);
	if (r == 0) {
		(void)buf_putf(&b, "PRAGMA user_version=%d", from + 1);
		r = sql_exec(s, buf_text(&b), e);
	}
	return sql_end(s, r, e);
}

/*
 * The switch to WAL does not wait for other processes as a transaction does, so the first
 * opening of a new file is serialised by a lock file of our own.
 */
static int migrate(struct db *s, struct err *e)
{
	_cleanup_buf_ struct buf lock = BUF_INIT(8192);
	_cleanup_fd_ int fd = -1;
	int have = 0, r;

	(void)buf_putf(&lock, "%s.lock", s->path);
	fd = open(buf_text(&lock), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, errno, "create %s", buf_text(&lock));
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "lock %s", buf_text(&lock));
	r = sql_exec(s, "PRAGMA journal_mode=WAL", e);
	while (r == 0) {
		r = db_version(s, &have, e);
		if (r < 0 || have == schema_latest(s->schema))
			break;
		if (have > schema_latest(s->schema))
			return too_new(s, have, e);
		r = migrate_step(s, have, e);
	}
	return r;
}

static int open_db(struct db *s, const char *path, struct err *e)
{
	int rc, have = 0, persist = 1, r;
	mode_t old;

	s->path = strdup(path);
	if (!s->path)
		return err_set(e, ERR_NOMEM, "open state database: out of memory");
	old = umask(077);
	/* One thread a process, here and everywhere: its mutexes would be taken for nothing. */
	rc = sqlite3_open_v2(path, &s->db,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW |
				 SQLITE_OPEN_NOMUTEX,
			     NULL);
	(void)umask(old);
	if (rc != SQLITE_OK)
		return sql_fail(s, rc, "open", e);
	/*
	 * The log stays when the last process closes: to make it anew costs each run four syncs. Whoever opens
	 * first reads it once, so it is kept short.
	 */
	(void)sqlite3_file_control(s->db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
	(void)sqlite3_wal_autocheckpoint(s->db, STORE_WAL_PAGES);
	(void)sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
	(void)sqlite3_extended_result_codes(s->db, 1);
	/*
	 * What the daemon's database was told is on the disk when it is answered: a key that was revoked does not come back with
	 * a power cut, nor a row that was sealed with a key that is gone. A run's own rows are found again by its directories.
	 */
	r = sql_exec(s, "PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF", e);
	if (r == 0)
		r = sql_exec(s,
			     s->schema == SCHEMA_SERVER ? "PRAGMA synchronous=FULL"
							: "PRAGMA synchronous=NORMAL",
			     e);
	if (r == 0)
		r = db_version(s, &have, e);
	if (r < 0)
		return r;
	if (have > schema_latest(s->schema))
		return too_new(s, have, e);
	return have == schema_latest(s->schema) ? 0 : migrate(s, e);
}

static int open_kind(enum schema which, const char *path, struct db **ret, struct err *e)
{
	_cleanup_store_ struct db *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ERR_NOMEM, "open state database: out of memory");
	s->schema = which;
	r = open_db(s, path, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

int db_open(const char *path, struct db **ret, struct err *e)
{
	return open_kind(SCHEMA_STATE, path, ret, e);
}

int db_open_server(const char *path, struct db **ret, struct err *e)
{
	return open_kind(SCHEMA_SERVER, path, ret, e);
}

void db_relax(struct db *s)
{
	(void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

void db_close(struct db *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < SQL_KEEP; i++)
		(void)sqlite3_finalize(s->kept[i].st);
	(void)sqlite3_close_v2(s->db);
	free(s->path);
	free(s);
}

void db_closep(struct db **s)
{
	db_close(*s);
	*s = NULL;
}
