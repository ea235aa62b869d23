/*
 * err.h: why something failed, for a person.
 *
 * Functions that can fail return 0 or a negative errno; those whose failure a
 * person must understand also fill a struct err on the caller's stack. Success
 * leaves it untouched. Every text names the object, the limit and the remedy.
 * `e` may be NULL everywhere: the code is still returned.
 */
#ifndef AIRLOCK_BASE_ERR_H
#define AIRLOCK_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

/* Append only: the numbers are part of the JSON record and of exit statuses. */
enum err_code {
	ERR_NONE = 0,
	ERR_USAGE,	 /* the command line is wrong */
	ERR_INVALID,	 /* a value is wrong */
	ERR_NOT_FOUND,	 /* the named object does not exist */
	ERR_EXISTS,	 /* the named object exists already */
	ERR_PERMISSION,	 /* the system or a policy refuses */
	ERR_LIMIT,	 /* a named limit was reached */
	ERR_TIMEOUT,	 /* a named time limit fired */
	ERR_CANCELLED,	 /* a person or a signal stopped it */
	ERR_CONFLICT,	 /* somebody else holds or changed the object */
	ERR_UNAVAILABLE, /* a layer or program that was asked for is missing */
	ERR_NO_SPACE,	 /* disk or quota full */
	ERR_PROTOCOL,	 /* a peer broke the protocol */
	ERR_HOSTILE,	 /* bytes from a sandbox break a boundary rule */
	ERR_IO,		 /* the system failed to read or write */
	ERR_NOMEM,	 /* out of memory */
	ERR_INTERNAL,	 /* our own bug */
	ERR_CODE_COUNT
};

struct err {
	enum err_code code;
	int sys; /* errno behind it, or 0 */
	char text[1024];
};

#define ERR_INIT ((struct err){.code = ERR_NONE})

/* Fills e and returns the negative errno that fits the code. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set; code and return value come from errnum (positive), whose text is appended. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts context before the text that is there: "context: text". Returns r. */
int err_wrap(struct err *e, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* The analyser sees no other file: it must be told that a failure is told as one. */
#define ERR_NEGATIVE(call)                \
	({                                \
		int negative_ = (call);   \
		if (negative_ >= 0)       \
			__builtin_trap(); \
		negative_;                \
	})
#define err_wrap(e, r, ...)                                  \
	({                                                   \
		int negative_ = (r);                         \
		(void)(err_wrap)(e, negative_, __VA_ARGS__); \
		negative_;                                   \
	})
#define err_set(...) ERR_NEGATIVE((err_set)(__VA_ARGS__))
#define err_sys(...) ERR_NEGATIVE((err_sys)(__VA_ARGS__))
#endif

/* Stable lower-case name of a code, for JSON ("not_found"). */
const char *err_name(enum err_code code);

/* Exit status of a program that stops for this reason: 2 for usage, else 125. */
int err_exit_status(enum err_code code);

#endif
