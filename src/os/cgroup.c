#include "os/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"

#define PARENT "airlock" /* our groups lie together, where an operator finds them */
#define TEXT_MAX (1 << 20)
#define PERIOD_US 100000 /* of CPU bandwidth; the kernel's default */

static const char *const controllers[CG_COUNT] = {"memory", "pids", "cpu"};

/* Pure text. ------------------------------------------------------------------------------- */

/* The n-th (from 0) space-separated field of a line; empty view beyond the last. */
static const char *field(const char *line, const char *end, unsigned n, size_t *ret_len)
{
	const char *p = line;

	for (;;) {
		const char *sp = memchr(p, ' ', (size_t)(end - p));
		const char *stop = sp ? sp : end;

		if (n-- == 0) {
			*ret_len = (size_t)(stop - p);
			return p;
		}
		if (!sp) {
			*ret_len = 0;
			return end;
		}
		p = sp + 1;
	}
}

/* True if a comma-separated list holds the word. */
static bool list_has(const char *p, size_t n, const char *word)
{
	size_t len = strlen(word);

	while (n > 0) {
		const char *comma = memchr(p, ',', n);
		size_t k = comma ? (size_t)(comma - p) : n;

		if (k == len && memcmp(p, word, k) == 0)
			return true;
		p += k + (comma ? 1 : 0);
		n -= k + (comma ? 1 : 0);
	}
	return false;
}

static const char *line_end(const char *p)
{
	const char *nl = strchr(p, '\n');

	return nl ? nl : p + strlen(p);
}

bool cgroup_find_mount(const char *mountinfo, const char *controller, char **ret_point,
		       char **ret_root)
{
	const char *end;

	for (const char *p = mountinfo; *p; p = *end ? end + 1 : end) {
		const char *dash, *type, *opts, *point, *root;
		size_t ntype, nopts, npoint, nroot;

		end = line_end(p);
		dash = memmem(p, (size_t)(end - p), " - ", 3);
		if (!dash)
			continue;
		type = field(dash + 3, end, 0, &ntype);
		opts = field(dash + 3, end, 2, &nopts);
		if (controller[0] ? ntype != 6 || memcmp(type, "cgroup", 6) != 0 ||
					!list_has(opts, nopts, controller)
				  : ntype != 7 || memcmp(type, "cgroup2", 7) != 0)
			continue;
		root = field(p, end, 3, &nroot);
		point = field(p, end, 4, &npoint);
		*ret_root = strndup(root, nroot);
		*ret_point = strndup(point, npoint);
		return *ret_root && *ret_point;
	}
	return false;
}

char *cgroup_find_self(const char *self, const char *controller)
{
	const char *end;

	for (const char *p = self; *p; p = *end ? end + 1 : end) {
		const char *a, *b;

		end = line_end(p);
		a = memchr(p, ':', (size_t)(end - p));
		b = a ? memchr(a + 1, ':', (size_t)(end - a - 1)) : NULL;
		if (!b)
			continue;
		if (controller[0] ? list_has(a + 1, (size_t)(b - a - 1), controller) : b == a + 1)
			return strndup(b + 1, (size_t)(end - b - 1));
	}
	return NULL;
}

uint64_t cgroup_find_count(const char *text, const char *key)
{
	size_t n = strlen(key);
	const char *end;

	for (const char *p = text; *p; p = *end ? end + 1 : end) {
		char digits[24];
		uint64_t v;
		size_t len;

		end = line_end(p);
		if ((size_t)(end - p) <= n || strncmp(p, key, n) != 0 || p[n] != ' ')
			continue;
		len = (size_t)(end - p) - n - 1;
		if (len >= sizeof(digits))
			return 0;
		memcpy(digits, p + n + 1, len);
		digits[len] = '\0';
		return str_to_u64(digits, UINT64_MAX, &v) == 0 ? v : 0;
	}
	return 0;
}

/* Files. ----------------------------------------------------------------------------------- */

static int read_text(const char *path, struct buf *b)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	for (char *to; (to = buf_room(b, 4096)) && (n = read(fd, to, 4096)) > 0;)
		buf_add(b, (size_t)n);
	return n < 0 ? -errno : b->err;
}

static int write_in(const char *dir, const char *file, const char *text)
{
	_cleanup_free_ char *path = path_join(dir, file);
	_cleanup_fd_ int fd = -1;

	if (!path)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int write_number(const char *dir, const char *file, uint64_t v)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return write_in(dir, file, text);
}

/* base/airlock/name. A left-over of a killed launcher is empty by now and taken over. */
static char *make_dir(const char *base, const char *name)
{
	_cleanup_free_ char *parent = path_join(base, PARENT);
	_cleanup_free_ char *dir = parent ? path_join(parent, name) : NULL;

	if (!dir || (mkdir(parent, 0755) < 0 && errno != EEXIST))
		return NULL;
	if (mkdir(dir, 0755) < 0 && (errno != EEXIST || rmdir(dir) < 0 || mkdir(dir, 0755) < 0))
		return NULL;
	return TAKE_PTR(dir);
}

/* What was asked for. */
static unsigned wanted(const struct cgroup_limits *l)
{
	return (l->memory_bytes ? 1u << CG_MEMORY : 0) | (l->pids ? 1u << CG_PIDS : 0) |
	       (l->cpu_milli ? 1u << CG_CPU : 0);
}

/* The caller's own group as a directory, if the mount shows it. */
static char *own_dir(const char *self, const char *controller, const char *point, const char *root)
{
	_cleanup_free_ char *own = cgroup_find_self(self, controller);
	const char *rel = own;

	if (!own || !path_is_within(own, root))
		return NULL;
	if (strcmp(root, "/") != 0)
		rel = own + strlen(root);
	return strcmp(rel, "/") == 0 || !rel[0] ? strdup(point) : path_join(point, rel + 1);
}

/* Version 1. ------------------------------------------------------------------------------- */

static int v1_limits(const char *dir, enum cgroup_controller c, const struct cgroup_limits *l)
{
	int r;

	switch (c) {
	case CG_MEMORY:
		r = write_number(dir, "memory.limit_in_bytes", l->memory_bytes);
		/* Memory and swap together; not there without swap accounting. */
		if (r == 0 && write_number(dir, "memory.memsw.limit_in_bytes", l->memory_bytes) < 0)
			(void)write_number(dir, "memory.swappiness", 0);
		return r;
	case CG_PIDS:
		return write_number(dir, "pids.max", l->pids);
	default:
		r = write_number(dir, "cpu.cfs_period_us", PERIOD_US);
		return r < 0 ? r
			     : write_number(dir, "cpu.cfs_quota_us",
					    l->cpu_milli * (PERIOD_US / 1000));
	}
}

static char *v1_dir(const char *mountinfo, const char *self, enum cgroup_controller c,
		    const char *name)
{
	_cleanup_free_ char *point = NULL, *root = NULL, *own = NULL;
	char *dir;

	if (!cgroup_find_mount(mountinfo, controllers[c], &point, &root))
		return NULL;
	dir = make_dir(point, name);
	if (dir)
		return dir;
	/* A directory that an operator has given to this user. */
	own = own_dir(self, controllers[c], point, root);
	return own ? make_dir(own, name) : NULL;
}

static bool v1_create(struct cgroup *cg, const char *mountinfo, const char *self, const char *name,
		      const struct cgroup_limits *l)
{
	for (unsigned c = 0; c < CG_COUNT; c++) {
		if (!(wanted(l) & (1u << c)))
			continue;
		cg->dir[c] = v1_dir(mountinfo, self, c, name);
		if (!cg->dir[c] || v1_limits(cg->dir[c], c, l) < 0)
			return false;
		cg->in_force |= 1u << c;
	}
	return true;
}

/* Version 2. ------------------------------------------------------------------------------- */

/* Hands the wanted controllers to the children of dir, if they are not yet. */
static int v2_hand_down(const char *dir, unsigned want)
{
	for (unsigned c = 0; c < CG_COUNT; c++) {
		char word[16];
		int r;

		if (!(want & (1u << c)))
			continue;
		(void)snprintf(word, sizeof(word), "+%s", controllers[c]);
		r = write_in(dir, "cgroup.subtree_control", word);
		if (r < 0)
			return r;
	}
	return 0;
}

static int v2_limits(const char *dir, const struct cgroup_limits *l)
{
	char cpu[64];
	int r = 0;

	if (l->memory_bytes) {
		r = write_number(dir, "memory.max", l->memory_bytes);
		if (r == 0)
			(void)write_number(dir, "memory.swap.max", 0);
	}
	if (r == 0 && l->pids)
		r = write_number(dir, "pids.max", l->pids);
	if (r == 0 && l->cpu_milli) {
		(void)snprintf(cpu, sizeof(cpu), "%llu %d",
			       (unsigned long long)(l->cpu_milli * (PERIOD_US / 1000)), PERIOD_US);
		r = write_in(dir, "cpu.max", cpu);
	}
	return r;
}

static bool v2_try(struct cgroup *cg, const char *base, const char *name,
		   const struct cgroup_limits *l)
{
	_cleanup_free_ char *parent = path_join(base, PARENT);

	/* Limits count only if every level hands the controller down. */
	if (!parent || v2_hand_down(base, wanted(l)) < 0 ||
	    (mkdir(parent, 0755) < 0 && errno != EEXIST) || v2_hand_down(parent, wanted(l)) < 0)
		return false;
	cg->dir[0] = make_dir(base, name);
	if (!cg->dir[0] || v2_limits(cg->dir[0], l) < 0)
		return false;
	cg->v2 = true;
	cg->in_force = wanted(l);
	return true;
}

static bool v2_create(struct cgroup *cg, const char *mountinfo, const char *self, const char *name,
		      const struct cgroup_limits *l)
{
	_cleanup_free_ char *point = NULL, *root = NULL, *own = NULL;
	char *slash;

	if (!cgroup_find_mount(mountinfo, "", &point, &root))
		return false;
	if (v2_try(cg, point, name, l))
		return true;
	cgroup_remove(cg);
	/*
	 * A group with processes of its own cannot hand controllers down, so the place is beside the
	 * caller's group: with systemd that is the user's own, delegated app.slice.
	 */
	own = own_dir(self, "", point, root);
	slash = own ? strrchr(own, '/') : NULL;
	if (!slash || strlen(own) <= strlen(point))
		return false;
	*slash = '\0';
	return v2_try(cg, own, name, l);
}

static const char *remedy(const struct cgroup_limits *l)
{
	return l->elsewhere
		   ? "no cgroup of that machine may be used by the account. Remedy: let the account's session "
		     "there have a delegated cgroup v2 (systemd: Delegate=yes)"
		   : "no cgroup here may be used by this user. Remedy: start from a delegated cgroup "
		     "(systemd-run --user --scope -p Delegate=yes airlock ...)";
}

int cgroup_create(struct cgroup *cg, const char *name, const struct cgroup_limits *l, struct err *e)
{
	_cleanup_buf_ struct buf info = BUF_INIT(TEXT_MAX), self = BUF_INIT(TEXT_MAX);
	_cleanup_free_ char *path = NULL;
	int r;

	*cg = CGROUP_INIT;
	if (!wanted(l))
		return 0;
	r = read_text("/proc/self/mountinfo", &info);
	if (r == 0)
		r = read_text("/proc/self/cgroup", &self);
	if (r < 0)
		return err_sys(e, -r, "cgroup limits: read /proc/self/mountinfo and cgroup");
	if (!v2_create(cg, buf_text(&info), buf_text(&self), name, l)) {
		cgroup_remove(cg);
		if (!v1_create(cg, buf_text(&info), buf_text(&self), name, l)) {
			cgroup_remove(cg);
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "limits of%s%s%s cannot be enforced: %s, or drop the limit, or accept "
			    "it unenforced with --without cgroup. `airlock doctor%s` shows what is "
			    "there",
			    l->memory_bytes ? " memory" : "", l->cpu_milli ? " CPU" : "",
			    l->pids ? " processes" : "", remedy(l),
			    l->elsewhere ? " --ssh ... --remote-sandbox" : "");
		}
	}
	if (cg->in_force & (1u << CG_MEMORY)) {
		path = path_join(cg->dir[0], cg->v2 ? "memory.events" : "memory.oom_control");
		cg->oom_fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	}
	return 0;
}

int cgroup_add(const struct cgroup *cg, pid_t pid, struct err *e)
{
	for (unsigned c = 0; c < CG_COUNT; c++) {
		int r;

		if (!cg->dir[c])
			continue;
		r = write_number(cg->dir[c], "cgroup.procs", (uint64_t)pid);
		if (r < 0)
			return err_sys(e, -r, "put the sandbox into cgroup %s", cg->dir[c]);
	}
	return 0;
}

uint32_t cgroup_oom_kills(const struct cgroup *cg)
{
	char text[512]; /* seven short lines at most; a page more of stack costs each start */
	ssize_t n = cg->oom_fd < 0 ? 0 : pread(cg->oom_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return (uint32_t)cgroup_find_count(text, "oom_kill");
}

void cgroup_remove(struct cgroup *cg)
{
	for (unsigned c = 0; c < CG_COUNT; c++) {
		/* unlinkat and not rmdir: the call that the monitor's filter knows. */
		if (cg->dir[c])
			(void)unlinkat(AT_FDCWD, cg->dir[c], AT_REMOVEDIR);
		free(cg->dir[c]);
	}
	cleanup_fd(&cg->oom_fd);
	*cg = CGROUP_INIT;
}
