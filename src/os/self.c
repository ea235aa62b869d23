#include "os/self.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"

int self_helper(const char *name, char **ret, struct err *e)
{
	static const char *const places[] = {".", "../libexec/airlock"};
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return err_sys(e, errno, "find own program: read /proc/self/exe");
	exe[n] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT((size_t)3 * PATH_MAX);
		_cleanup_free_ char *p = NULL;

		(void)buf_putf(&b, "%.*s/%s/%s", (int)(path_base(exe) - exe - 1), exe, places[i],
			       name);
		if (b.err)
			return err_set(e, ERR_NOMEM, "find helper %s: out of memory", name);
		p = path_normalize(buf_text(&b));
		if (!p)
			return err_set(e, ERR_NOMEM, "find helper %s: out of memory", name);
		if (access(p, X_OK) == 0) {
			*ret = TAKE_PTR(p);
			return 0;
		}
	}
	return err_set(e, ERR_UNAVAILABLE,
		       "helper program %s is missing beside %s and in ../libexec/airlock: "
		       "install Airlock again",
		       name, exe);
}
