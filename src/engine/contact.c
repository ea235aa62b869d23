#include "engine/contact.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "engine/leasespec.h"
#include "provider/provider.h"
#include "store/lease.h"

static void read_failure(const char *path, struct contact *c)
{
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	char text[300];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	n = read(fd, text, sizeof(text));
	(void)str_printable(&b, text, n > 0 ? (size_t)n : 0);
	(void)snprintf(c->why, sizeof(c->why), "%s", buf_text(&b));
	c->tried_ns = (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
	c->away = true;
}

static unsigned count_reconnects(struct state *st, const char *lease_id)
{
	_cleanup_free_ char *path = state_path(st, "leases", lease_id, SANDBOX_RECONNECTED);
	struct stat s;

	return path && lstat(path, &s) == 0 ? (unsigned)s.st_size : 0;
}

int64_t contact_goes_on_ns(struct state *st, const char *lease_id)
{
	_cleanup_free_ char *path = state_path(st, "leases", lease_id, SANDBOX_GOES_ON);
	struct stat s;

	return path && lstat(path, &s) == 0
		   ? (int64_t)s.st_mtim.tv_sec * NS_PER_S + s.st_mtim.tv_nsec
		   : 0;
}

void contact_get(struct state *st, const char *lease_id, struct contact *ret)
{
	_cleanup_free_ char *path = state_path(st, "leases", lease_id, SANDBOX_UNREACHED);
	_cleanup_leasespec_ struct lease_spec s = {0};
	struct lease_row l = {0};
	uint64_t max = 0;

	*ret = (struct contact){0};
	if (lease_get(st->store, lease_id, &l, NULL) == 0 && leasespec_get(l.spec, &s, NULL) == 0 &&
	    s.remote && s.remote[0])
		ret->target = strdup(s.remote[0]);
	for (char *const *w = ret->target ? s.remote : NULL; w && *w; w++)
		if (str_starts(*w, "max-runs="))
			(void)str_to_u64(*w + strlen("max-runs="), UINT32_MAX, &max);
	ret->max_runs = (unsigned)max;
	ret->reconnects = count_reconnects(st, lease_id);
	if (ret->target)
		read_failure(path, ret);
	lease_row_done(&l);
}

void contact_done(struct contact *c)
{
	free(c->target);
	c->target = NULL;
}
