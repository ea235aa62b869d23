/*
 * gate.c: preloaded into airlock by test_phases.py: stops it where a phase is written to the database.
 *
 * GATE_PHASE names the phase, GATE_DIR a directory with the FIFO "open". When the row is committed
 * the file "here" appears and the program waits until somebody opens the FIFO for writing; each
 * signal that arrives meanwhile adds a byte to "signals". With GATE_STORAGE instead of GATE_PHASE it waits before it makes
 * the first directory of the sandbox's storage: airlock-launch and its child are there by then, and wait as well. Not a part of
 * any product program.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sqlite3;
struct sqlite3_stmt;
int sqlite3_bind_text(struct sqlite3_stmt *st, int i, const char *text, int n,
		      void (*done)(void *));
int sqlite3_step(struct sqlite3_stmt *st);
int sqlite3_exec(struct sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **),
		 void *arg, char **msg);
struct sqlite3 *sqlite3_db_handle(struct sqlite3_stmt *st);
int sqlite3_get_autocommit(struct sqlite3 *db);

static enum { IDLE, SEEN, OVER } state;

static int at(const char *name, int flags)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", getenv("GATE_DIR"), name);
	return open(path, flags | O_CLOEXEC, 0600);
}

static void stop_here(void)
{
	int fd;

	state = OVER;
	(void)close(at("here", O_WRONLY | O_CREAT));
	while ((fd = at("open", O_RDONLY)) < 0 && errno == EINTR) {
		int n = at("signals", O_WRONLY | O_CREAT | O_APPEND);

		if (write(n, "", 1) != 1)
			_exit(99);
		(void)close(n);
	}
	(void)close(fd);
}

static void wait_here(struct sqlite3 *db)
{
	if (state == SEEN && sqlite3_get_autocommit(db))
		stop_here();
}

int mkdirat(int dir, const char *name, mode_t mode)
{
	int (*real)(int, const char *, mode_t) =
	    (int (*)(int, const char *, mode_t))dlsym(RTLD_NEXT, "mkdirat");

	if (state == IDLE && getenv("GATE_STORAGE") && strcmp(name, "upper") == 0)
		stop_here();
	return real(dir, name, mode);
}

int sqlite3_bind_text(struct sqlite3_stmt *st, int i, const char *text, int n, void (*done)(void *))
{
	int (*real)(struct sqlite3_stmt *, int, const char *, int, void (*)(void *)) =
	    (int (*)(struct sqlite3_stmt *, int, const char *, int,
		     void (*)(void *)))dlsym(RTLD_NEXT, "sqlite3_bind_text");
	const char *phase = getenv("GATE_PHASE");

	if (state == IDLE && phase && text && strcmp(text, phase) == 0)
		state = SEEN;
	return real(st, i, text, n, done);
}

int sqlite3_step(struct sqlite3_stmt *st)
{
	int (*real)(struct sqlite3_stmt *) =
	    (int (*)(struct sqlite3_stmt *))dlsym(RTLD_NEXT, "sqlite3_step");
	int r = real(st);

	wait_here(sqlite3_db_handle(st));
	return r;
}

int sqlite3_exec(struct sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **),
		 void *arg, char **msg)
{
	int (*real)(struct sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *,
		    char **) =
	    (int (*)(struct sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *,
		     char **))dlsym(RTLD_NEXT, "sqlite3_exec");
	int r = real(db, sql, row, arg, msg);

	wait_here(db);
	return r;
}
