/* The real airlock-guest runs commands: exec semantics, trees, limits (RT-04, RT-05, RT-06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest_box.h"
#include "scratch.h"

#define S(lit) ((char *)(uintptr_t)(lit))

static enum box_mode mode;

/* A word that only this run's processes carry, and that sleep(1) takes as a duration. */
static const char *mark(void)
{
	static char text[32];
	static unsigned n;

	(void)snprintf(text, sizeof(text), "9%d.7%04u", (int)getpid(), ++n);
	return text;
}

static struct box_cmd *run_f(struct box *b, const char *fmt, const char *word)
{
	_cleanup_buf_ struct buf s = BUF_INIT(4096);

	for (const char *p = fmt; *p; p++)
		if (*p == '@')
			(void)buf_puts(&s, word);
		else
			(void)buf_putc(&s, *p);
	return box_sh(b, buf_text(&s));
}

static int64_t ms_since(int64_t t)
{
	return (clock_mono_ns() - t) / NS_PER_MS;
}

static void output_code_and_usage_come_back(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = box_run(&b, "echo out; echo err >&2; exit 3");
	assert_true(c->started);
	assert_string_equal(buf_text(&c->got_out), "out\n");
	assert_string_equal(buf_text(&c->got_err), "err\n");
	assert_int_equal(c->exit.code, 3);
	assert_int_equal(c->exit.signo, 0);
	assert_int_equal(c->exit.leftovers, 0);
	assert_true(c->exit.maxrss_kib > 0);
	c = box_run(&b, "kill -SEGV $$");
	assert_int_equal(c->exit.signo, SIGSEGV);
	assert_int_equal(c->exit.code, 0);
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B001, J11: TERM reaches the whole tree, with and without a leader. */
static void term_ends_the_whole_tree(void **state)
{
	static const char *const scripts[] = {
	    "sleep @ & sleep @ & echo up; wait",
	    "setsid sleep @ & (setsid sh -c 'sleep @ & sleep @' &) ; echo up; wait; sleep @",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
		const char *m = mark();
		struct box b;
		struct box_cmd *c;

		box_start(&b, mode, -1);
		c = run_f(&b, scripts[i], m);
		box_expect(&b, c, "up");
		assert_true(box_alive(m));
		box_signal(&b, c, SIGTERM);
		box_finish(&b, c);
		assert_int_equal(c->exit.signo, SIGTERM);
		assert_false(box_alive(m));
		assert_int_equal(box_stop(&b), 0);
	}
}

/* FR-B006: what a command leaves behind is ended, counted and does not hold up its end. */
static void leftovers_are_ended_and_counted(void **state)
{
	static const struct {
		const char *script;
		unsigned leftovers;
	} rows[] = {
	    {"sleep @ & echo ready", 1},
	    {"setsid sleep @ & echo ready", 1},
	    /* FR-B095: the zombie below it does not count. */
	    {"{ sh -c 'sleep 0.01 & echo go; exec sleep @' & } | { read x; sleep 0.4; }; echo ready",
	     1},
	    {"{ setsid sh -c 'sleep @ & sleep @ & echo go; wait' & } | read x; echo ready", 3},
	    {"{ sh -c 'trap \"\" TERM; sleep @ & echo go; wait' & } | read x; echo ready", 2},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *m = mark();
		int64_t t;
		struct box b;
		struct box_cmd *c;

		box_start(&b, mode, -1);
		t = clock_mono_ns();
		c = run_f(&b, rows[i].script, m);
		box_finish(&b, c);
		assert_true(ms_since(t) < 5000);
		assert_int_equal(c->exit.code, 0);
		assert_string_equal(buf_text(&c->got_out), "ready\n");
		assert_int_equal(c->exit.leftovers, rows[i].leftovers);
		assert_false(box_alive(m));
		assert_int_equal(box_stop(&b), 0);
	}
}

/* What ends by itself at once (the last of a pipeline, say) keeps its output and is no leftover. */
static void a_short_tail_may_finish(void **state)
{
	struct box b;
	struct box_cmd *c;
	bool whole = false;
	int64_t t = clock_mono_ns();

	(void)state;
	box_start(&b, mode, -1);
	/* The time to settle is short, so a loaded machine may miss it, also twenty times: not for a minute. */
	for (int i = 0; i < BOX_CMDS - 50 && !whole && ms_since(t) < 60000; i++) {
		c = box_run(&b, "(sleep 0.002; echo tail) & echo head");
		whole = c->exit.leftovers == 0 && str_eq(buf_text(&c->got_out), "head\ntail\n");
	}
	assert_true(whole);
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B028: 1,000 quick commands, 20 at once, no byte is lost. */
static void quick_commands_lose_nothing(void **state)
{
	struct box b;

	(void)state;
	for (int round = 0; round < 5; round++) {
		box_start(&b, mode, -1);
		for (int batch = 0; batch < 10; batch++) {
			struct box_cmd *c[20];

			for (size_t i = 0; i < ARRAY_LEN(c); i++)
				c[i] = box_sh(&b, i % 10 ? "printf late; exit 0"
							 : "head -c 200000 /dev/zero | tr '\\0' x");
			for (size_t i = 0; i < ARRAY_LEN(c); i++) {
				box_finish(&b, c[i]);
				assert_int_equal(c[i]->exit.code, 0);
				assert_int_equal(c[i]->got_out.len, i % 10 ? 4 : 200000);
			}
		}
		assert_int_equal(box_stop(&b), 0);
	}
}

/* FR-B037: input arrives byte for byte, then end of file; a reader that closes early is no crash. */
static void input_arrives_whole(void **state)
{
	static char *const env[] = {S("PATH=/usr/bin:/bin"), NULL};
	char *cat[] = {S("cat"), NULL}, *wc[] = {S("wc"), S("-c"), NULL},
	     *yes[] = {S("true"), NULL};
	size_t n = 5u << 20;
	_cleanup_free_ char *big = malloc(n);
	struct box b;
	struct box_cmd *c;

	(void)state;
	assert_non_null(big);
	for (size_t i = 0; i < n; i++)
		big[i] = (char)(i * 7 + (i >> 9));
	box_start(&b, mode, -1);
	c = box_exec(&b, cat, env, NULL, "hello\n", 6, 0);
	box_finish(&b, c);
	assert_string_equal(buf_text(&c->got_out), "hello\n");
	c = box_exec(&b, wc, env, NULL, big, n, 0);
	box_finish(&b, c);
	assert_string_equal(buf_text(&c->got_out), "5242880\n");
	c = box_exec(&b, cat, env, NULL, big, n, 0);
	box_finish(&b, c);
	assert_int_equal(c->got_out.len, n);
	assert_memory_equal(c->got_out.data, big, n);
	c = box_exec(&b, yes, env, NULL, big, n, 0);
	box_finish(&b, c);
	assert_int_equal(c->exit.code, 0);
	while (c->in >= 0)
		assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
	assert_true(c->input_broke);
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B054, J14: words and values arrive as they are, nothing is added to the environment. */
static void arguments_and_values_are_verbatim(void **state)
{
	char *argv[] = {S("sh"),   S("-c"),  S("printf '%s|' \"$0\" \"$@\" \"$A\" \"$B\"; pwd"),
			S("n"),	   S("a b"), S(""),
			S("it's"), S("$x"),  S("*"),
			NULL};
	char *dump[] = {S("/usr/bin/env"), S("-0"), NULL},
	     *len[] = {S("sh"), S("-c"), S("printf %s \"$L\" | wc -c"), NULL};
	_cleanup_free_ char *lng = calloc(1, ENV_VALUE_MAX + 1);
	char *env[] = {S("A=line\nline"), S("B='\"\\ "), S("PATH=/bin"), NULL},
	     *lenv[] = {lng, S("PATH=/bin:/usr/bin"), NULL};
	struct box b;
	struct box_cmd *c;

	(void)state;
	memset(lng, 'v', ENV_VALUE_MAX);
	memcpy(lng, "L=", 2);
	box_start(&b, mode, -1);
	c = box_exec(&b, argv, env, "/usr", NULL, 0, 0);
	box_finish(&b, c);
	assert_string_equal(buf_text(&c->got_out), "n|a b||it's|$x|*|line\nline|'\"\\ |/usr\n");
	c = box_exec(&b, dump, env, NULL, NULL, 0, 0);
	box_finish(&b, c);
	assert_int_equal(c->got_out.len, strlen(env[0]) + strlen(env[1]) + strlen(env[2]) + 3);
	c = box_exec(&b, len, lenv, NULL, NULL, 0, 0);
	box_finish(&b, c);
	assert_string_equal(buf_text(&c->got_out), "131069\n");
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B095: a zombie is not alive: it neither counts as left behind nor delays the end. */
static void a_zombie_is_not_alive(void **state)
{
	struct box b;
	struct box_cmd *c;
	int64_t t;

	(void)state;
	box_start(&b, mode, -1);
	t = clock_mono_ns();
	c = box_run(&b, "true & exec sleep 0.2");
	assert_int_equal(c->exit.leftovers, 0);
	assert_true(ms_since(t) < 2000);
	assert_int_equal(box_stop(&b), 0);
}

/* FR-B109, J10, J15: both streams at once, a megabyte each way, any bytes. */
static void both_streams_flow(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = box_run(&b, "head -c 1000000 /dev/zero; printf e >&2");
	assert_int_equal(c->got_out.len, 1000000);
	assert_int_equal(c->got_err.len, 1);
	c = box_run(&b, "head -c 1000000 /dev/zero >&2; printf o");
	assert_int_equal(c->got_err.len, 1000000);
	assert_int_equal(c->got_out.len, 1);
	c = box_run(&b, "head -c 1000000 /dev/zero & head -c 1000000 /dev/zero >&2; wait");
	assert_int_equal(c->got_out.len + c->got_err.len, 2000000);
	c = box_run(&b, "head -c 50000000 /dev/zero");
	assert_int_equal(c->got_out.len, 50000000);
	c = box_run(&b, "printf 'a\\000\\303'; printf '\\244\\377'");
	assert_int_equal(c->got_out.len, 5);
	assert_memory_equal(c->got_out.data, "a\0\303\244\377", 5);
	assert_int_equal(box_stop(&b), 0);
}

/* Signals, mask, session, descriptors and umask of a command. */
static void a_command_starts_clean(void **state)
{
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = box_run(&b, "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; umask");
	assert_string_equal(buf_text(&c->got_out),
			    "SigBlk:0000000000000000SigIgn:00000000000000000022\n");
	c = box_run(&b, "ls /proc/self/fd | tr '\\n' ' '");
	assert_string_equal(buf_text(&c->got_out), "0 1 2 3 ");
	c = box_run(
	    &b, "cut -d' ' -f1,5,6 /proc/$$/stat | { read p g s; [ $p = $g ] && [ $p = $s ]; }");
	assert_int_equal(c->exit.code, 0);
	assert_int_equal(box_stop(&b), 0);
}

static void write_file(const char *path, const char *text, mode_t perm)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, perm), 0);
}

/* Exit statuses 126 and 127 come from these pairs. PATH is the command's, not that of pid 1. */
static void failures_to_start_are_named(void **state)
{
	char dir[] = "/tmp/guest-exec-XXXXXX", path[64], script[64], interp[64], dirpath[96];
	const struct {
		const char *word, *path, *cwd, *step;
		int error;
	} rows[] = {
	    {"no-such-command", "PATH=/bin", "/", "execve", ENOENT},
	    {"", "PATH=/bin", "/", "execve", ENOENT},
	    {"/no/such", "PATH=/bin", "/", "execve", ENOENT},
	    {"sh", "PATH=/nowhere", "/", "execve", ENOENT},
	    {path, "PATH=/bin", "/", "execve", EACCES},
	    {"plain", dirpath, "/", "execve", EACCES},
	    {"/etc", "PATH=/bin", "/", "execve", EACCES},
	    {interp, "PATH=/bin", "/", "execve", ENOENT},
	    {"true", "PATH=/bin", "/no/such/dir", "chdir", ENOENT},
	    {"true", "PATH=/bin", "/etc/passwd", "chdir", ENOTDIR},
	};
	struct box b;

	(void)state;
	assert_non_null(scratch_dir(dir));
	(void)snprintf(path, sizeof(path), "%s/plain", dir);
	(void)snprintf(script, sizeof(script), "%s/airlock-noshebang", dir);
	(void)snprintf(interp, sizeof(interp), "%s/interp", dir);
	(void)snprintf(dirpath, sizeof(dirpath), "PATH=%s:/bin", dir);
	write_file(path, "x", 0644);
	write_file(script, "echo \"$0 $1\"\n", 0755);
	write_file(interp, "#!/no/such/interpreter\n", 0755);
	box_start(&b, mode, -1);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char *argv[] = {S(rows[i].word), NULL}, *env[] = {S(rows[i].path), NULL};
		struct box_cmd *c = box_exec(&b, argv, env, rows[i].cwd, NULL, 0, 0);

		box_finish(&b, c);
		assert_true(c->failed);
		assert_false(c->started);
		assert_int_equal(c->why.error, rows[i].error);
		assert_string_equal(c->why.step, rows[i].step);
	}
	{
		/* No "#!": sh runs it. An empty element of PATH is the directory of the command. */
		char *argv[] = {S("airlock-noshebang"), S("arg"), NULL},
		     *env[] = {S("PATH=/bin::"), NULL};
		struct box_cmd *c = box_exec(&b, argv, env, dir, NULL, 0, 0);

		box_finish(&b, c);
		assert_string_equal(buf_text(&c->got_out), "airlock-noshebang arg\n");
	}
	assert_int_equal(box_stop(&b), 0);
	(void)unlink(path);
	(void)unlink(script);
	(void)unlink(interp);
	(void)rmdir(dir);
}

static void what_ignores_term_is_killed(void **state)
{
	const char *m = mark();
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = run_f(&b, "trap '' TERM INT HUP; echo up; while :; do sleep @; done", m);
	box_expect(&b, c, "up");
	box_signal(&b, c, SIGTERM);
	box_signal(&b, c, SIGINT);
	/* Answered after both were delivered: it is still there. */
	box_finish(&b, box_sh(&b, "true"));
	assert_false(c->exited);
	box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGKILL);
	assert_false(box_alive(m));
	assert_int_equal(box_stop(&b), 0);
}

/* A process that stopped itself must not outlive TERM. */
static void a_stopped_tree_gets_term(void **state)
{
	const char *m = mark();
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = run_f(&b, "echo up; kill -STOP $$; sleep @", m);
	box_expect(&b, c, "up");
	box_signal(&b, c, SIGTERM);
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGTERM);
	assert_int_equal(box_stop(&b), 0);
}

static void many_at_once_and_the_limit(void **state)
{
	struct box b;
	struct box_cmd *c[EXECS_MAX], *more;
	char *cat[] = {S("/bin/cat"), NULL};

	(void)state;
	box_start(&b, mode, -1);
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		c[i] = box_exec(&b, cat, NULL, NULL, "x", 1, 0);
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		while (!c[i]->started)
			assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		box_finish(&b, c[i]);
	/* Now with nobody ending: one too many is refused, and accepted once there is room. */
	for (size_t i = 0; i < 30; i++) {
		c[i] = box_sh(&b, "echo $$");
		box_finish(&b, c[i]);
	}
	assert_int_equal(box_stop(&b), 0);
	box_start(&b, mode, -1);
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		c[i] = box_sh(&b, "exec sleep 600");
	more = box_sh(&b, "true");
	box_finish(&b, more);
	assert_true(more->failed);
	assert_int_equal(more->why.error, EAGAIN);
	assert_string_equal(more->why.step, "limit");
	while (!c[7]->started)
		assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
	box_signal(&b, c[7], SIGKILL);
	box_finish(&b, c[7]);
	more = box_sh(&b, "true");
	box_finish(&b, more);
	assert_int_equal(more->exit.code, 0);
	assert_int_equal(box_stop(&b), 0);
}

/* Sandbox code may kill its holder: its tree still ends, the event still comes, others go on. */
static void a_killed_holder_is_covered(void **state)
{
	char *waits[] = {S("/bin/sh"), S("-c"), S("read x; echo $x"), NULL};
	const char *m = mark();
	struct box b;
	struct box_cmd *c, *other;

	(void)state;
	box_start(&b, mode, -1);
	other = box_exec(&b, waits, NULL, NULL, "go\n", 3, 0);
	other->input_left = 0;
	c = run_f(&b, "(setsid sleep @ &); kill -9 $PPID; sleep @", m);
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGKILL);
	assert_false(box_alive(m));
	assert_false(other->exited);
	other->input_left = 3;
	box_finish(&b, other);
	assert_string_equal(buf_text(&other->got_out), "go\n");
	c = run_f(&b, "kill -STOP $PPID; sleep @", m);
	while (!box_alive(m))
		assert_true(box_turn(&b, clock_mono_ns() + NS_PER_S));
	box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGKILL);
	assert_false(box_alive(m));
	if (mode == BOX_PID1) {
		c = run_f(&b, "sleep @ & kill -9 -1; sleep @", m);
		box_finish(&b, c);
		assert_false(box_alive(m));
		c = box_run(&b, "echo still here");
		assert_string_equal(buf_text(&c->got_out), "still here\n");
	}
	assert_int_equal(box_stop(&b), 0);
}

static size_t count_of_uid(unsigned uid)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	struct dirent *e;
	size_t n = 0;

	while ((e = readdir(d))) {
		struct stat st;

		n += e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
		     fstatat(dirfd(d), e->d_name, &st, 0) == 0 && st.st_uid == uid;
	}
	return n;
}

static void a_fork_bomb_is_ended(void **state)
{
	struct box b;
	struct box_cmd *c;
	int64_t end = clock_mono_ns() + 20 * NS_PER_S;
	size_t before;

	(void)state;
	if (getuid()) {
		skip();
		return;
	}
	box_uid = 64300 + (mode == BOX_PID1);
	box_nproc = 150;
	box_start(&b, mode, -1);
	before = count_of_uid(box_uid);
	/* The sleepers keep places: what only forks ends at the limit, and on a busy machine before anybody counts. */
	c = box_sh(&b, "for i in $(seq 100); do sleep 600 & done; b(){ sleep 600 & b|b& }; "
		       "b 2>/dev/null; exec sleep 600");
	while (count_of_uid(box_uid) < 110) {
		assert_true(clock_mono_ns() < end);
		(void)box_turn(&b, clock_mono_ns() + 5 * NS_PER_MS);
	}
	box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(c->exit.signo, SIGKILL);
	/* The holder says it last and ends then. */
	while (count_of_uid(box_uid) != before)
		assert_true(clock_mono_ns() < end);
	c = box_run(&b, "echo fine");
	assert_string_equal(buf_text(&c->got_out), "fine\n");
	box_uid = 0;
	assert_int_equal(box_stop(&b), 0);
}

/* The launcher's end of the socket is the life line. */
static void a_closed_socket_ends_everything(void **state)
{
	const char *m = mark();
	struct box b;
	struct box_cmd *c;

	(void)state;
	box_start(&b, mode, -1);
	c = run_f(&b, "trap '' TERM; (setsid sleep @ &); echo up; while :; do sleep @; done", m);
	box_expect(&b, c, "up");
	assert_int_equal(shutdown(b.chan.fd, SHUT_RDWR), 0);
	assert_int_equal(box_stop(&b), 0);
	assert_false(box_alive(m));
}

static void shutdown_ends_what_ignores_term(void **state)
{
	const char *m = mark();
	struct box b;
	struct box_cmd *c;
	int64_t t;

	(void)state;
	box_start(&b, mode, -1);
	c = run_f(&b, "trap '' TERM; (setsid sleep @ &); echo up; while :; do sleep @; done", m);
	box_expect(&b, c, "up");
	t = clock_mono_ns();
	assert_int_equal(box_stop(&b), 0);
	assert_true(ms_since(t) < 5000);
	assert_false(box_alive(m));
}

static size_t rss_kib(pid_t pid)
{
	char path[64], line[256];
	FILE *f;
	size_t kib = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtoul(line + 6, NULL, 10);
	(void)fclose(f);
	return kib;
}

/* Requests without end and nobody who reads the answers: memory stays, service goes on after. */
static void a_flood_stays_small(void **state)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64), w = BUF_INIT(64);
	struct box b;
	struct box_cmd *c;
	int r = 0;

	(void)state;
	box_start(&b, mode, -1);
	c = box_sh(&b, "trap '' USR1; echo up; while :; do sleep 0.05; done");
	box_expect(&b, c, "up");
	(void)buf_u64(&p, 1);
	(void)gm_signal_put(&w, &(struct gm_signal){c->id, SIGUSR1});
	for (int i = 0; i < 200000 && r == 0; i++)
		r = chan_send(&b.chan, i % 2 ? GM_SIGNAL : GM_PING, i % 2 ? w.data : p.data,
			      i % 2 ? w.len : p.len, NULL, 0, clock_mono_ns() + 300 * NS_PER_MS,
			      NULL);
	assert_int_equal(r, -ETIMEDOUT); /* it pushed back */
	if (mode == BOX_PLAIN)
		assert_true(rss_kib(b.pid) < 2048);
	while (b.pongs < 1000)
		assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
	box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(box_stop(&b), 0);
}

static void a_broken_launcher_ends_it(void **state)
{
	_cleanup_buf_ struct buf p = BUF_INIT(64);
	struct box b;

	(void)state;
	for (uint8_t type = 0; type < 3; type++) {
		box_start(&b, mode, -1);
		(void)buf_u8(&p, 0);
		box_send(&b, type == 0 ? 200 : type == 1 ? GM_SIGNAL : GM_EXEC, &p);
		assert_int_equal(WEXITSTATUS(box_stop(&b)), 3);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(output_code_and_usage_come_back),
	    cmocka_unit_test(term_ends_the_whole_tree),
	    cmocka_unit_test(leftovers_are_ended_and_counted),
	    cmocka_unit_test(a_short_tail_may_finish),
	    cmocka_unit_test(quick_commands_lose_nothing),
	    cmocka_unit_test(input_arrives_whole),
	    cmocka_unit_test(arguments_and_values_are_verbatim),
	    cmocka_unit_test(a_zombie_is_not_alive),
	    cmocka_unit_test(both_streams_flow),
	    cmocka_unit_test(a_command_starts_clean),
	    cmocka_unit_test(failures_to_start_are_named),
	    cmocka_unit_test(what_ignores_term_is_killed),
	    cmocka_unit_test(a_stopped_tree_gets_term),
	    cmocka_unit_test(many_at_once_and_the_limit),
	    cmocka_unit_test(a_killed_holder_is_covered),
	    cmocka_unit_test(a_fork_bomb_is_ended),
	    cmocka_unit_test(a_closed_socket_ends_everything),
	    cmocka_unit_test(shutdown_ends_what_ignores_term),
	    cmocka_unit_test(a_flood_stays_small),
	    cmocka_unit_test(a_broken_launcher_ends_it),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	mode = argc > 1 && strcmp(argv[1], "pid1") == 0 ? BOX_PID1 : BOX_PLAIN;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
