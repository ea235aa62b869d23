/*
 * Policy (B-05, B-06): everything that a sandbox can see comes from a plan, and a plan names only
 * its own storage, read-only layers and read-only binds, none of which is, contains or lies in a
 * place that must stay outside. Not done here: whether paths exist or are links (the caller
 * resolves them, the launcher opens them without following any).
 */
#include "provider/plan.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"

#define PLAN_VERSION 4
#define HOSTNAME_LEN_MAX 63 /* one DNS label */

#define WITHOUT_ALL (WITHOUT_CGROUP | WITHOUT_LANDLOCK | WITHOUT_SECCOMP | WITHOUT_OVERLAY)

/* What the launcher builds itself. A bind there would replace part of the image or of the boundary. */
static const char *const made_inside[] = {
    "/proc", "/dev", "/etc",  "/run", "/sys",	"/tmp",	  "/var",    "/.airlock", PLAN_HOME,
    "/usr",  "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix",
};

/* Host places that hold kernel interfaces or sockets of services; never a toolchain. */
static const char *const never_bound[] = {"/proc", "/sys", "/dev", "/run", "/var/run", "/boot"};

static bool overlaps(const char *a, const char *b)
{
	return path_is_within(a, b) || path_is_within(b, a);
}

static int need_path(const char *what, const char *p, struct err *e)
{
	if (!p)
		return err_set(e, ERR_INVALID, "sandbox plan: %s is missing", what);
	if (!path_is_absolute_normal(p) || strlen(p) >= PATH_MEMBER_MAX)
		return err_set(
		    e, ERR_INVALID,
		    "sandbox plan: %s `%.200s` is not an absolute path without `.`, `..` "
		    "and double slashes of at most %d bytes",
		    what, p, PATH_MEMBER_MAX - 1);
	if (strcmp(p, "/") == 0)
		return err_set(e, ERR_INVALID, "sandbox plan: %s cannot be the root directory",
			       what);
	return 0;
}

static int check_outside(const struct plan *p, const char *what, const char *path, struct err *e)
{
	for (size_t i = 0; i < p->forbidden_len; i++)
		if (overlaps(path, p->forbidden[i]))
			return err_set(
			    e, ERR_PERMISSION,
			    "%s `%.200s` is, contains or lies in `%.200s`, which must "
			    "stay outside the sandbox: name a narrower or another directory",
			    what, path, p->forbidden[i]);
	return 0;
}

static int check_hostname(const char *h, struct err *e)
{
	size_t n = h ? strlen(h) : 0;

	if (n == 0 || n > HOSTNAME_LEN_MAX)
		return err_set(e, ERR_INVALID,
			       "sandbox plan: the host name must have 1 to %d bytes",
			       HOSTNAME_LEN_MAX);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)h[i]) && (h[i] != '-' || i == 0 || i == n - 1))
			return err_set(e, ERR_INVALID,
				       "sandbox plan: host name `%s` may hold only letters, digits "
				       "and inner hyphens",
				       h);
	return 0;
}

static int check_values(const struct plan *p, struct err *e)
{
	if (p->net != NET_NONE && p->net != NET_HOST)
		return err_set(e, ERR_INVALID, "sandbox plan: unknown network mode %u", p->net);
	if (p->without & ~WITHOUT_ALL)
		return err_set(e, ERR_INVALID, "sandbox plan: unknown layers to do without: 0x%x",
			       p->without & ~WITHOUT_ALL);
	if (p->uid_inside == 0 || p->gid_inside == 0)
		return err_set(e, ERR_PERMISSION, "sandbox plan: a sandbox never has root inside");
	if (p->uid_host == 0 || p->gid_host == 0)
		return err_set(e, ERR_PERMISSION,
			       "sandbox plan: no process of a sandbox may be the host's root");
	if (p->uid_inside == UINT32_MAX || p->gid_inside == UINT32_MAX ||
	    p->uid_host == UINT32_MAX || p->gid_host == UINT32_MAX)
		return err_set(e, ERR_INVALID, "sandbox plan: a user or group id is missing");
	if (p->memory_bytes && p->memory_bytes < PLAN_MEMORY_MIN)
		return err_set(
		    e, ERR_INVALID,
		    "memory limit of %llu bytes is under the least that works, %llu bytes",
		    (unsigned long long)p->memory_bytes, (unsigned long long)PLAN_MEMORY_MIN);
	if (p->sockets > PLAN_SOCKETS_MAX || (p->sockets && p->net != NET_NONE))
		return err_set(e, ERR_INVALID,
			       "sandbox plan: sockets of a network of its own are at most %d, and "
			       "none of the host's",
			       PLAN_SOCKETS_MAX);
	if (p->pids > INT32_MAX || p->cpu_milli > INT32_MAX || p->memory_bytes > INT64_MAX)
		return err_set(e, ERR_INVALID, "sandbox plan: a limit is beyond any machine");
	return 0;
}

static int check_storage(const struct plan *p, struct err *e)
{
	int r = check_outside(p, "sandbox storage", p->lease_dir, e);

	if (r < 0)
		return r;
	if (strcmp(p->state_dir, p->lease_dir) == 0 || !path_is_within(p->lease_dir, p->state_dir))
		return err_set(e, ERR_INVALID,
			       "sandbox plan: storage `%.200s` is not below the state directory "
			       "`%.200s`",
			       p->lease_dir, p->state_dir);
	if (p->image) {
		r = need_path("the system image", p->image, e);
		if (r == 0)
			r = check_outside(p, "system image", p->image, e);
		if (r < 0)
			return r;
		if (overlaps(p->image, p->lease_dir))
			return err_set(
			    e, ERR_INVALID,
			    "sandbox plan: system image `%.200s` overlaps the storage `%.200s`",
			    p->image, p->lease_dir);
	}
	for (size_t i = 0; i < p->layers_len; i++) {
		r = need_path("a layer", p->layers[i], e);
		if (r == 0)
			r = check_outside(p, "layer", p->layers[i], e);
		if (r < 0)
			return r;
		if (overlaps(p->layers[i], p->lease_dir))
			return err_set(e, ERR_INVALID,
				       "sandbox plan: layer `%.200s` overlaps the storage `%.200s`",
				       p->layers[i], p->lease_dir);
		for (size_t j = 0; j < i; j++)
			if (overlaps(p->layers[i], p->layers[j]))
				return err_set(e, ERR_INVALID,
					       "sandbox plan: layers `%.200s` and `%.200s` overlap",
					       p->layers[j], p->layers[i]);
	}
	return 0;
}

static int check_inside(const struct plan *p, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(made_inside); i++)
		if (overlaps(p->inside, made_inside[i]))
			return err_set(
			    e, ERR_INVALID,
			    "the workspace cannot be at `%.200s` inside: `%s` belongs to "
			    "the sandbox's own image; use /workspace",
			    p->inside, made_inside[i]);
	return 0;
}

static int check_bind_src(const struct plan *p, const char *src, struct err *e)
{
	int r = need_path("the source of a bind", src, e);

	if (r == 0)
		r = check_outside(p, "bind", src, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(never_bound); i++)
		if (overlaps(src, never_bound[i]))
			return err_set(e, ERR_PERMISSION,
				       "bind `%.200s` touches `%s`, where the host keeps kernel "
				       "interfaces and sockets of its services",
				       src, never_bound[i]);
	if (overlaps(src, p->state_dir))
		return err_set(e, ERR_PERMISSION,
			       "bind `%.200s` touches Airlock's own state in `%.200s`", src,
			       p->state_dir);
	if (p->image && overlaps(src, p->image))
		return err_set(e, ERR_PERMISSION, "bind `%.200s` touches the system image `%.200s`",
			       src, p->image);
	for (size_t i = 0; i < p->layers_len; i++)
		if (overlaps(src, p->layers[i]))
			return err_set(e, ERR_PERMISSION,
				       "bind `%.200s` touches the workspace layer `%.200s`", src,
				       p->layers[i]);
	return 0;
}

static int check_bind_dst(const struct plan *p, size_t n, struct err *e)
{
	const char *dst = p->binds[n].dst;
	int r = need_path("the place of a bind", dst, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(made_inside); i++)
		if (overlaps(dst, made_inside[i]))
			return err_set(
			    e, ERR_PERMISSION,
			    "bind to `%.200s` inside is not possible: `%s` belongs to the "
			    "sandbox's own image; choose a place such as /opt/NAME",
			    dst, made_inside[i]);
	if (overlaps(dst, p->inside))
		return err_set(
		    e, ERR_PERMISSION,
		    "bind to `%.200s` inside is not possible: it would lie in or over the "
		    "workspace `%.200s`",
		    dst, p->inside);
	for (size_t i = 0; i < n; i++)
		if (overlaps(dst, p->binds[i].dst))
			return err_set(e, ERR_INVALID,
				       "binds to `%.200s` and `%.200s` lie in one another",
				       p->binds[i].dst, dst);
	return 0;
}

int plan_check(const struct plan *p, struct err *e)
{
	int r;

	if (p->layers_len > PLAN_LAYERS_MAX || p->binds_len > PLAN_BINDS_MAX ||
	    p->forbidden_len > PLAN_FORBIDDEN_MAX)
		return err_set(e, ERR_LIMIT,
			       "sandbox plan: over %d layers, %d binds or %d forbidden places",
			       PLAN_LAYERS_MAX, PLAN_BINDS_MAX, PLAN_FORBIDDEN_MAX);
	if ((r = need_path("the guest program", p->guest, e)) < 0 ||
	    (p->gateway && (r = need_path("the gateway program", p->gateway, e)) < 0) ||
	    (r = need_path("the storage", p->lease_dir, e)) < 0 ||
	    (r = need_path("the state directory", p->state_dir, e)) < 0 ||
	    (r = need_path("the place of the workspace", p->inside, e)) < 0)
		return r;
	for (size_t i = 0; i < p->forbidden_len; i++)
		if ((r = need_path("a forbidden place", p->forbidden[i], e)) < 0)
			return r;
	if ((r = check_hostname(p->hostname, e)) < 0 || (r = check_values(p, e)) < 0 ||
	    (r = check_storage(p, e)) < 0 || (r = check_inside(p, e)) < 0)
		return r;
	for (size_t i = 0; i < p->binds_len; i++) {
		r = check_bind_src(p, p->binds[i].src, e);
		if (r == 0)
			r = check_bind_dst(p, i, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static void put_strings(struct buf *b, char *const *v, size_t n)
{
	(void)buf_u32(b, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		(void)buf_str(b, v[i]);
}

int plan_put(struct buf *b, const struct plan *p)
{
	(void)buf_u32(b, PLAN_VERSION);
	(void)buf_str(b, p->guest);
	(void)buf_str(b, p->gateway ? p->gateway : "");
	(void)buf_str(b, p->image ? p->image : "");
	(void)buf_str(b, p->lease_dir);
	(void)buf_str(b, p->state_dir);
	(void)buf_str(b, p->inside);
	(void)buf_str(b, p->hostname);
	put_strings(b, p->layers, p->layers_len);
	(void)buf_u32(b, (uint32_t)p->binds_len);
	for (size_t i = 0; i < p->binds_len; i++) {
		(void)buf_str(b, p->binds[i].src);
		(void)buf_str(b, p->binds[i].dst);
	}
	put_strings(b, p->forbidden, p->forbidden_len);
	(void)buf_u32(b, p->net);
	(void)buf_u32(b, p->without);
	(void)buf_u32(b, p->uid_inside);
	(void)buf_u32(b, p->gid_inside);
	(void)buf_u32(b, p->uid_host);
	(void)buf_u32(b, p->gid_host);
	(void)buf_u64(b, p->memory_bytes);
	(void)buf_u64(b, p->pids);
	(void)buf_u64(b, p->cpu_milli);
	(void)buf_u32(b, p->sockets);
	(void)buf_u8(b, p->keep);
	return b->err;
}

static size_t get_count(struct cursor *c, size_t max)
{
	uint32_t n = cursor_u32(c);

	if (n > max)
		c->failed = true;
	return c->failed ? 0 : n;
}

static void get_strings(struct cursor *c, char **v, size_t max, size_t *ret_n)
{
	size_t n = get_count(c, max);

	for (size_t i = 0; i < n; i++) {
		v[i] = cursor_strdup(c, PATH_MEMBER_MAX);
		*ret_n = i + 1;
	}
}

int plan_get(struct view v, struct plan *ret, struct err *e)
{
	struct cursor c;
	size_t n;

	*ret = (struct plan){0};
	cursor_init(&c, v.p, v.n);
	if (cursor_u32(&c) != PLAN_VERSION)
		return err_set(e, ERR_PROTOCOL,
			       "sandbox plan: another version; install Airlock's programs again");
	ret->guest = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->gateway = cursor_strdup(&c, PATH_MEMBER_MAX);
	if (ret->gateway && !*ret->gateway) {
		free(ret->gateway);
		ret->gateway = NULL;
	}
	ret->image = cursor_strdup(&c, PATH_MEMBER_MAX);
	if (ret->image && !*ret->image) {
		free(ret->image);
		ret->image = NULL;
	}
	ret->lease_dir = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->state_dir = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->inside = cursor_strdup(&c, PATH_MEMBER_MAX);
	ret->hostname = cursor_strdup(&c, PATH_MEMBER_MAX);
	get_strings(&c, ret->layers, PLAN_LAYERS_MAX, &ret->layers_len);
	n = get_count(&c, PLAN_BINDS_MAX);
	for (size_t i = 0; i < n; i++) {
		ret->binds[i].src = cursor_strdup(&c, PATH_MEMBER_MAX);
		ret->binds[i].dst = cursor_strdup(&c, PATH_MEMBER_MAX);
		ret->binds_len = i + 1;
	}
	get_strings(&c, ret->forbidden, PLAN_FORBIDDEN_MAX, &ret->forbidden_len);
	ret->net = cursor_u32(&c);
	ret->without = cursor_u32(&c);
	ret->uid_inside = cursor_u32(&c);
	ret->gid_inside = cursor_u32(&c);
	ret->uid_host = cursor_u32(&c);
	ret->gid_host = cursor_u32(&c);
	ret->memory_bytes = cursor_u64(&c);
	ret->pids = cursor_u64(&c);
	ret->cpu_milli = cursor_u64(&c);
	ret->sockets = cursor_u32(&c);
	ret->keep = cursor_u8(&c) != 0;
	if (!cursor_end(&c))
		return err_set(e, ERR_PROTOCOL, "sandbox plan: malformed");
	return 0;
}

void plan_done(struct plan *p)
{
	free(p->guest);
	free(p->gateway);
	free(p->image);
	free(p->lease_dir);
	free(p->state_dir);
	free(p->inside);
	free(p->hostname);
	for (size_t i = 0; i < p->layers_len; i++)
		free(p->layers[i]);
	for (size_t i = 0; i < p->binds_len; i++) {
		free(p->binds[i].src);
		free(p->binds[i].dst);
	}
	for (size_t i = 0; i < p->forbidden_len; i++)
		free(p->forbidden[i]);
	*p = (struct plan){0};
}
