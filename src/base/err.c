#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int errnum;
	int exit_status;
} table[ERR_CODE_COUNT] = {
    [ERR_NONE] = {"none", 0, 0},
    [ERR_USAGE] = {"usage", EINVAL, 2},
    [ERR_INVALID] = {"invalid", EINVAL, 125},
    [ERR_NOT_FOUND] = {"not_found", ENOENT, 125},
    [ERR_EXISTS] = {"exists", EEXIST, 125},
    [ERR_PERMISSION] = {"permission", EACCES, 125},
    [ERR_LIMIT] = {"limit", E2BIG, 125},
    [ERR_TIMEOUT] = {"timeout", ETIMEDOUT, 125},
    [ERR_CANCELLED] = {"cancelled", ECANCELED, 125},
    [ERR_CONFLICT] = {"conflict", EBUSY, 125},
    [ERR_UNAVAILABLE] = {"unavailable", EOPNOTSUPP, 125},
    [ERR_NO_SPACE] = {"no_space", ENOSPC, 125},
    [ERR_PROTOCOL] = {"protocol", EPROTO, 125},
    [ERR_HOSTILE] = {"hostile", EBADMSG, 125},
    [ERR_IO] = {"io", EIO, 125},
    [ERR_NOMEM] = {"nomem", ENOMEM, 125},
    [ERR_INTERNAL] = {"internal", ENOTRECOVERABLE, 125},
};

static enum err_code code_of(int errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
	case ESRCH:
		return ERR_NOT_FOUND;
	case EEXIST:
	case ENOTEMPTY:
		return ERR_EXISTS;
	case EACCES:
	case EPERM:
	case EROFS:
		return ERR_PERMISSION;
	case ENOSPC:
	case EDQUOT:
		return ERR_NO_SPACE;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	case ENOMEM:
		return ERR_NOMEM;
	case ECANCELED:
	case EINTR:
		return ERR_CANCELLED;
	case EBUSY:
		return ERR_CONFLICT;
	case EINVAL:
	case ENAMETOOLONG:
		return ERR_INVALID;
	case E2BIG:
	case EMFILE:
	case ENFILE:
	case EFBIG:
	case EAGAIN:
		return ERR_LIMIT;
	case EPROTO:
		return ERR_PROTOCOL;
	case EBADMSG:
		return ERR_HOSTILE;
	case ENOSYS:
	case EOPNOTSUPP:
		return ERR_UNAVAILABLE;
	default:
		return ERR_IO;
	}
}

int(err_set)(struct err *e, enum err_code code, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		e->code = code;
		e->sys = 0;
		va_start(ap, fmt);
		(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
	}
	return -table[code].errnum;
}

int(err_sys)(struct err *e, int errnum, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (errnum <= 0)
		errnum = EIO;
	if (e) {
		e->code = code_of(errnum);
		e->sys = errnum;
		va_start(ap, fmt);
		n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < sizeof(e->text))
			(void)snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s",
				       strerror(errnum));
	}
	return -errnum;
}

int(err_wrap)(struct err *e, int r, const char *fmt, ...)
{
	char old[sizeof(e->text)];
	va_list ap;
	int n;

	if (!e || r >= 0)
		return r;
	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->text))
		(void)snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", old);
	return r;
}

const char *err_name(enum err_code code)
{
	return code < ERR_CODE_COUNT ? table[code].name : "internal";
}

int err_exit_status(enum err_code code)
{
	return code < ERR_CODE_COUNT ? table[code].exit_status : 125;
}
