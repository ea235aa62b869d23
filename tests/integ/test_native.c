/*
 * The native provider, for real: what a sandbox has, what it lacks, how it ends.
 * Run as root and as an ordinary user (the user's copy of the programs is made by native-as-user).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "native_box.h"

static void expect(struct nbox *b, const char *script, int code, const char *out)
{
	int r = nbox_sh(b, script);

	if (r != code || (out && strcmp(buf_text(&b->out), out) != 0))
		fail_msg("`%s`: exit %d (want %d), output `%s` (want `%s`)", script, r, code,
			 buf_text(&b->out), out ? out : "any");
}

/* L1, FR-B050, FR-B080, RT: one sandbox, many looks. */
static void look_inside(void)
{
	static const struct {
		const char *script, *out;
	} looks[] = {
	    {"cat hello.txt sub/deep.txt", "hello\ndeep\n"},
	    {"pwd", "/workspace\n"},
	    {"hostname", "airlock\n"},
	    {"echo $HOME; cd; pwd", "/home/agent\n/home/agent\n"},
	    {"id -un", "agent\n"},
	    {"whoami", "agent\n"},
	    /* FR-B050, L2 */
	    {"echo x >/dev/null && echo ok", "ok\n"},
	    {"head -c 4 /dev/urandom | wc -c", "4\n"},
	    {"echo in | cat /dev/stdin", "in\n"},
	    {"ls /dev/shm /dev/pts | wc -l", NULL},
	    {"echo a >/dev/shm/x && cat /dev/shm/x", "a\n"},
	    /* L1: every usual place of programs */
	    {"/bin/sh -c 'echo bin'", "bin\n"},
	    {"/usr/bin/env echo env", "env\n"},
	    {"test -e /lib/x86_64-linux-gnu -o -e /lib -o -e /lib64 && echo lib", "lib\n"},
	    /* FR-B080 */
	    {"getent hosts localhost | grep -c localhost", "1\n"},
	    {"getent passwd agent | cut -d: -f6", "/home/agent\n"},
	    {"test -d /etc/ssl/certs && ls /etc/ssl/certs | head -1 | wc -l", "1\n"},
	    /* writable places */
	    {"echo 1 >new && cat new && rm hello.txt && ls", "1\nnew\nsub\n"},
	    {"mv sub/deep.txt sub/moved && cat sub/moved", "deep\n"},
	    {"echo t >/tmp/t && echo t >/var/tmp/u && cat /tmp/u && echo h >~/h && cat ~/h",
	     "t\nh\n"},
	    /* read-only ones */
	    {"touch /x 2>/dev/null || echo no", "no\n"},
	    {"touch /usr/x 2>/dev/null || echo no", "no\n"},
	    {"touch /etc/x 2>/dev/null || echo no", "no\n"},
	    {"touch /run/x 2>/dev/null || echo no", "no\n"},
	    {"cat /etc/shadow 2>/dev/null || echo none", "none\n"},
	    /* processes: pid 1 is ours, nobody else is there */
	    {"ls /proc | grep -c '^[0-9]*$'", NULL},
	    {"cat /proc/1/comm", "airlock-guest\n"},
	    /* rights: of no process, so the start's second task (beside.h) is gone */
	    {"grep -L 'CapEff:.0000000000000000' /proc/[0-9]*/status | wc -l", "0\n"},
	    {"grep CapEff /proc/self/status | cut -f2", "0000000000000000\n"},
	    {"grep CapBnd /proc/self/status | cut -f2", "0000000000000000\n"},
	    {"grep NoNewPrivs /proc/self/status | cut -f2", "1\n"},
	    {"grep Seccomp: /proc/self/status | cut -f2", "2\n"},
	    {"ulimit -c", "0\n"},
	    /* descriptors of a command */
	    {"ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 "},
	    {"ip link 2>/dev/null | grep -c '^[0-9]' || cat /proc/net/dev | grep -c :", "1\n"},
	};
	struct nbox b;

	nbox_init(&b);
	nbox_start(&b);
	for (size_t i = 0; i < ARRAY_LEN(looks); i++)
		expect(&b, looks[i].script, 0, looks[i].out);
	nbox_done(&b);
}

static void test_inside(void **state)
{
	(void)state;
	look_inside();
}

/* With one processor the start has no second task (beside.h): the same sandbox comes out of it. */
static void test_inside_one_processor(void **state)
{
	cpu_set_t all, one;
	int cpu = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	look_inside();
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* Exit codes and failures of a command are told apart. */
static void test_exits(void **state)
{
	struct nbox b;
	char *none[] = {(char *)(uintptr_t) "no-such-program", NULL};

	(void)state;
	nbox_init(&b);
	nbox_start(&b);
	assert_int_equal(nbox_sh(&b, "exit 7"), 7);
	assert_int_equal(nbox_sh(&b, "kill -9 $$"), 128 + 9);
	assert_int_equal(nbox_exec(&b, none), -ENOENT);
	assert_string_equal(b.last.step, "execve");
	nbox_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_inside),
	    cmocka_unit_test(test_inside_one_processor),
	    cmocka_unit_test(test_exits),
	};

	return cmocka_run_group_tests_name("native", tests, NULL, NULL);
}
