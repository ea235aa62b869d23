#include "api/place.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/command.h"
#include "engine/images.h"
#include "engine/runenv.h"

#define KIND "served"
#define END_WAIT_NS (10 * NS_PER_S)

static uint64_t number(const json_t *config, const char *name)
{
	json_t *v = json_object_get(config, name);

	return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v)
							       : 0;
}

int place_open(struct place *p, struct state *st, const struct envlease_row *l,
	       const json_t *config, struct err *e)
{
	const char *net = json_string_value(json_object_get(config, "network"));

	*p = (struct place){.st = st,
			    .dir = state_path(st, KIND, l->provider_lease_id, NULL),
			    .outside = path_join(st->dir, "runs")};
	if (!p->dir || !p->outside)
		return err_set(e, ERR_NOMEM, "lease: out of memory");
	p->spec = (struct sandbox_spec){
	    .lease_id = l->provider_lease_id,
	    .lease_dir = p->dir,
	    /* No workspace of the host is part of it; logs and results of others must stay outside all the same. */
	    .workspace = p->outside,
	    .inside = INSIDE_WORKSPACE,
	    .hostname = "airlock",
	    .net = net && strcmp(net, "host") == 0 ? NET_HOST : NET_NONE,
	    .binds = p->binds,
	    .limits = {.memory_bytes = number(config, "memoryBytes"),
		       .pids = number(config, "pids"),
		       .cpu_milli = number(config, "cpuMillis")},
	    .keep = true,
	};
	return 0;
}

int place_image(struct place *p, const json_t *config, struct err *e)
{
	const char *image = json_string_value(json_object_get(config, "image"));
	char digest[IMAGE_HEX + 1];
	int r;

	if (!image)
		return 0;
	r = images_have(p->st, image, digest, e);
	/* Never the host's programs instead. */
	if (r < 0)
		return r;
	p->image = images_tree(p->st, digest);
	if (!p->image)
		return err_set(e, ERR_NOMEM, "lease: out of memory");
	p->spec.image = p->image;
	return 0;
}

void place_done(struct place *p)
{
	free(p->image);
	p->image = NULL;
	free(p->dir);
	free(p->outside);
	p->dir = p->outside = NULL;
}

char *place_parent(const struct state *st)
{
	return path_join(st->dir, KIND);
}

int place_kept(const struct state *st, const char *name)
{
	_cleanup_free_ char *parent = place_parent(st),
			    *dir = parent ? path_join(parent, name) : NULL;
	struct stat s;

	if (!dir)
		return -ENOMEM;
	if (lstat(dir, &s) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

int place_start(struct place *p, struct sandbox **ret, struct err *e)
{
	_cleanup_free_ char *parent = place_parent(p->st);
	int r;

	if (!parent)
		return err_set(e, ERR_NOMEM, "lease: out of memory");
	if (mkdir(parent, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", parent);
	/* The sandbox's user must walk through both to its storage; the state directory above is 0700. */
	if (chmod(parent, 0711) < 0)
		return err_sys(e, errno, "set the mode of %s", parent);
	r = state_mkdir(p->st, KIND, p->spec.lease_id, e);
	if (r == 0 && chmod(p->dir, 0711) < 0)
		r = err_sys(e, errno, "set the mode of %s", p->dir);
	if (r == 0)
		r = provider_native.validate(&p->spec, e);
	return r < 0 ? r : provider_native.acquire(&p->spec, ret, e);
}

int place_attach(struct place *p, struct sandbox **ret, struct err *e)
{
	return provider_native.attach(&p->spec, ret, e);
}

int place_end(struct place *p, const struct envlease_row *l, struct err *e)
{
	struct sandbox *sb = NULL;
	struct stat st;
	int r;

	if (stat(p->dir, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "look at %s", p->dir);
	r = place_attach(p, &sb, e);
	if (r == 0)
		return provider_native.release(sb, e);
	if (!l->monitor.pid)
		return r == -ENOENT || r == -ECONNREFUSED ? 0 : r;
	/* It does not answer. Its monitor is its end: the kernel ends the guest with it. */
	r = proc_signal(&l->monitor, SIGKILL);
	if (r == 0)
		r = proc_wait_gone(&l->monitor, clock_mono_ns() + END_WAIT_NS);
	return r == 0 || r == -ESRCH ? 0
				     : err_sys(e, -r, "end the sandbox of lease %s (process %d)",
					       l->id, (int)l->monitor.pid);
}

int place_remove(struct place *p, const char *name, struct err *e)
{
	_cleanup_free_ char *trash = NULL;
	int r = state_discard(p->st, KIND, name, &trash, e);

	if (r == 0 && trash)
		r = provider_native.destroy_storage(trash, e);
	if (r == 0 && trash)
		r = state_remove_tree(trash, e);
	return r;
}

/* --- looking inside ----------------------------------------------------------------------- */

/* One line for each thing that is not there, then what kind of system this is. */
static const char script[] =
    "for c in tar node; do command -v $c >/dev/null || echo \"missing $c\"; done\n"
    "w() { mkdir -p \"$2\" 2>/dev/null; [ -d \"$2\" ] && [ -w \"$2\" ] || echo \"missing $1\"; }\n"
    "w workspace \"$PWD\"; w home \"$HOME\"; w cache \"$XDG_CACHE_HOME\"; w tmp \"$TMPDIR\"\n"
    "echo \"system $(uname -s)\"; echo \"machine $(uname -m)\"\n"
    "l=$(getconf GNU_LIBC_VERSION 2>/dev/null) || l=$(ldd --version 2>&1 | sed -n '/^musl/{s/ .*//;h};/^Version /{H;x;s/\\nVersion / /p;q}')\n"
    "echo \"libc ${l:-unknown}\"\n"
    "echo done\n";

static void keep_line(const char *line, size_t n, const char *word, char *out, size_t max)
{
	size_t k = strlen(word), at = strlen(out);

	if (n > k && strncmp(line, word, k) == 0)
		(void)snprintf(out + at, max - at, "%s%.*s", at ? ", " : "", (int)(n - k),
			       line + k);
}

int place_look(struct sandbox *sb, struct place_facts *ret, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(16384), plain = BUF_INIT(65536);
	char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)script, NULL};
	char *env[] = {(char *)(uintptr_t) "PATH=" INSIDE_HOME "/.local/bin:" PATH_SYSTEM,
		       (char *)(uintptr_t) "HOME=" INSIDE_HOME,
		       (char *)(uintptr_t) "XDG_CACHE_HOME=" INSIDE_HOME "/.cache",
		       (char *)(uintptr_t) "TMPDIR=/tmp",
		       (char *)(uintptr_t) "LANG=C.UTF-8",
		       NULL};
	struct command_opts o = {.argv = argv,
				 .env = env,
				 .cwd = INSIDE_WORKSPACE,
				 .io = {.in = -1, .out = -1, .err = -1, .capture_out = &out},
				 .timeout_ns = PROBE_TIMEOUT_MS * NS_PER_MS};
	struct command_result res;
	int r = command_run(sb, &o, &res, e);

	*ret = (struct place_facts){0};
	if (r < 0)
		return r;
	if (res.end == END_FAILED) {
		(void)snprintf(ret->missing, sizeof(ret->missing), "sh");
		return 0;
	}
	/* B-01: what comes out is data, and only printable bytes of it travel on. */
	for (size_t i = 0; i < out.len; i++)
		(void)buf_putc(&plain,
			       (out.data[i] >= ' ' && out.data[i] < 0x7f) || out.data[i] == '\n'
				   ? out.data[i]
				   : '?');
	if (res.end != END_EXITED || !strstr(buf_text(&plain), "done\n"))
		return err_set(e, ERR_UNAVAILABLE, "the probe in the sandbox gave no whole answer");
	for (const char *p = buf_text(&plain); *p;) {
		size_t n = strcspn(p, "\n");

		keep_line(p, n, "missing ", ret->missing, sizeof(ret->missing));
		keep_line(p, n, "system ", ret->system, sizeof(ret->system));
		keep_line(p, n, "machine ", ret->machine, sizeof(ret->machine));
		keep_line(p, n, "libc ", ret->libc, sizeof(ret->libc));
		p += n + (p[n] == '\n');
	}
	return 0;
}
