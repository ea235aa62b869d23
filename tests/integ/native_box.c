#include "native_box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "scratch.h"

#define OUT_MAX (4 << 20)
#define EVENT_MS 20000

static char *const env[] = {
    (char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin",
    (char *)(uintptr_t) "HOME=/home/agent",
    (char *)(uintptr_t) "LANG=C",
    NULL,
};

static char *must_dir(const char *parent, const char *name, uid_t uid)
{
	char *p = path_join(parent, name);

	assert_non_null(p);
	if (mkdir(p, 0755) < 0)
		assert_int_equal(errno, EEXIST);
	if (uid != (uid_t)-1)
		assert_int_equal(chown(p, uid, uid), 0);
	return p;
}

static void must_file(const char *dir, const char *name, const char *text, uid_t uid)
{
	_cleanup_free_ char *p = path_join(dir, name);
	_cleanup_fd_ int fd = open(p, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	if (uid != (uid_t)-1)
		assert_int_equal(fchown(fd, uid, uid), 0);
}

void nbox_init(struct nbox *b)
{
	char tmpl[] = "/tmp/airlock-nbox-XXXXXX";
	_cleanup_free_ char *state = NULL, *leases = NULL, *sub = NULL, *trash = NULL;
	_cleanup_free_ char *roots = NULL;
	uid_t uid;
	gid_t gid;

	*b = (struct nbox){.out = BUF_INIT(OUT_MAX)};
	provider_native.owner(&uid, &gid);
	assert_non_null(scratch_dir(tmpl));
	b->dir = strdup(tmpl);
	state = must_dir(b->dir, "state", (uid_t)-1);
	trash = must_dir(state, "trash", (uid_t)-1);
	leases = must_dir(state, "leases", (uid_t)-1);
	roots = must_dir(state, "roots", (uid_t)-1);
	b->lease = must_dir(leases, "1", (uid_t)-1);
	b->work = must_dir(b->dir, "work", (uid_t)-1);
	b->base = must_dir(state, "base", uid);
	sub = must_dir(b->base, "sub", uid);
	must_file(b->base, "hello.txt", "hello\n", uid);
	must_file(sub, "deep.txt", "deep\n", uid);
	/* Root keeps its state where nobody else may walk. */
	assert_int_equal(chmod(state, 0700), 0);
	b->layers[0] = b->base;
	b->spec = (struct sandbox_spec){
	    .lease_id = "1",
	    .lease_dir = b->lease,
	    .workspace = b->work,
	    .layers = b->layers,
	    .inside = "/workspace",
	    .hostname = "airlock",
	    .binds = b->binds,
	};
}

void nbox_start(struct nbox *b)
{
	struct err e = ERR_INIT;
	int r = provider_native.acquire(&b->spec, &b->sb, &e);

	if (r < 0)
		print_error("acquire: %s\n", e.text);
	assert_int_equal(r, 0);
}

void nbox_drop(struct nbox *b)
{
	scratch_remove(b->dir);
	free(b->dir);
	free(b->base);
	free(b->lease);
	free(b->work);
	buf_done(&b->out);
}

void nbox_done(struct nbox *b)
{
	struct err e = ERR_INIT;

	if (b->sb)
		assert_int_equal(provider_native.release(b->sb, &e), 0);
	b->sb = NULL;
	if (provider_native.destroy_storage(b->lease, &e) < 0)
		fail_msg("destroy_storage: %s", e.text);
	nbox_drop(b);
}

struct sandbox_event nbox_event(struct nbox *b, int ms)
{
	int64_t end = clock_mono_ns() + ms * NS_PER_MS;
	struct sandbox_event ev;
	struct err e = ERR_INIT;

	for (;;) {
		struct pollfd p = {.fd = provider_native.event_fd(b->sb), .events = POLLIN};
		int r = provider_native.next_event(b->sb, &ev, &e);

		if (r < 0)
			fail_msg("next_event: %s", e.text);
		if (r > 0)
			return ev;
		if (poll(&p, 1, clock_poll_ms(end, clock_mono_ns())) == 0)
			fail_msg("no event within %d ms", ms);
	}
}

static uint32_t start(struct nbox *b, char *const *argv, int in, int out)
{
	struct exec_spec x = {
	    .argv = argv, .env = env, .cwd = "/workspace", .in = in, .out = out, .err = out};
	struct err e = ERR_INIT;
	uint32_t id = 0;

	if (provider_native.exec(b->sb, &x, &id, &e) < 0)
		fail_msg("exec: %s", e.text);
	return id;
}

uint32_t nbox_spawn(struct nbox *b, char *const *argv)
{
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	return start(b, argv, null, null);
}

int nbox_exec(struct nbox *b, char *const *argv)
{
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC), rd = -1;
	int p[2];
	uint32_t id;
	ssize_t n = 1;

	buf_reset(&b->out);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	rd = p[0];
	id = start(b, argv, null, p[1]);
	(void)close(p[1]);
	for (char *to; n > 0 && (to = buf_room(&b->out, 65536));) {
		n = read(rd, to, 65536);
		if (n > 0)
			buf_add(&b->out, (size_t)n);
	}
	for (;;) {
		struct sandbox_event ev = nbox_event(b, EVENT_MS);

		if (ev.type == SE_ENDED)
			fail_msg("the sandbox ended while a command ran");
		if (ev.id != id || ev.type == SE_STARTED)
			continue;
		b->last = ev;
		if (ev.type == SE_FAILED)
			return -ev.sys;
		return ev.signo ? 128 + ev.signo : ev.code;
	}
}

int nbox_sh(struct nbox *b, const char *script)
{
	char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)script, NULL};

	return nbox_exec(b, argv);
}
