/* provider/ssh/link.h: what a login shell or a guest does that does not answer: time runs out all the same (K6, RT-06). */
#include "provider/ssh/link.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/chan.h"
#include "wire/rejoin.h"
#include "wire/remote.h"

#include <cmocka.h>

#define PROGRAM_SIZE 200000 /* more than pipes hold */
#define WAIT_NS (120 * NS_PER_S)

struct far {
	pid_t helper, shell;
	struct chan ch;
};

/* A program of its own that has ssh's streams; ours are ret's: stdin, stdout, stderr. */
static pid_t start_shell(const char *script, int ret[3])
{
	int in[2], out[2], err[2];
	pid_t pid;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)dup2(err[1], 2);
		(void)execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(err[1]);
	ret[0] = in[1];
	ret[1] = out[0];
	ret[2] = err[0];
	return pid;
}

static void begin(struct far *f, const char *script, const struct rm_setup *m)
{
	int sv[2], fds[3], program = memfd_create("program", MFD_CLOEXEC);
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(ftruncate(program, PROGRAM_SIZE), 0);
	f->shell = start_shell(script, fds);
	f->helper = fork();
	if (f->helper == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		(void)close(sv[0]);
		(void)close(fds[0]);
		_exit(link_serve(sv[1]) < 0);
	}
	(void)close(sv[1]);
	chan_init(&f->ch, sv[0], false);
	assert_int_equal(rm_setup_put(&b, m), 0);
	assert_int_equal(chan_send(&f->ch, RM_SETUP, b.data, b.len,
				   (int[]){fds[0], fds[1], fds[2], program}, RM_SETUP_FDS,
				   clock_mono_ns() + WAIT_NS, NULL),
			 0);
	for (size_t i = 0; i < 3; i++)
		(void)close(fds[i]);
	(void)close(program);
}

/* How it ended, as airlock is told. */
static uint32_t end_of(struct far *f)
{
	struct cursor c;
	struct frame m;
	int r;

	do {
		r = chan_recv(&f->ch, clock_mono_ns() + WAIT_NS, &m, NULL, NULL);
	} while (r > 0 && m.type != RM_LINK);
	if (r <= 0)
		fail_msg("it did not end: %d", r);
	cursor_init(&c, m.payload.p, m.payload.n);
	return cursor_u32(&c);
}

static void finish(struct far *f)
{
	chan_done(&f->ch);
	(void)kill(f->shell, SIGKILL);
	(void)waitpid(f->shell, NULL, 0);
	(void)waitpid(f->helper, NULL, 0);
}

#define READ_NONCE "read -r n h s m; "
#define LINE "echo \"airlock $n "

/* Each would hold a session for ever in one of its phases. */
static const struct {
	const char *name, *script;
	uint32_t how;
} shells[] = {
    {"says nothing", "sleep 1000", LINK_SILENT},
    {"prints a little for ever and reads nothing", "while :; do echo x; sleep 0.01; done",
     LINK_SILENT},
    {"takes no program and says nothing", READ_NONCE LINE "need\"; sleep 1000", LINK_SILENT},
    /* What it printed and nobody took kept the wait from running out (and the processor busy). */
    {"takes no program and prints", READ_NONCE LINE "need\"; while :; do echo x; sleep 0.01; done",
     LINK_SILENT},
    {"takes no program and floods", READ_NONCE LINE "need\"; exec yes", LINK_NOISE},
    {"prints much before it takes the program",
     READ_NONCE LINE "need\"; yes | head -c 60000; head -c \"$s\" >/dev/null; " LINE
		     "fail hash x\"",
     LINK_REFUSED},
    /* Somebody removed what it had. */
    {"has the program and then has not",
     READ_NONCE LINE "have\"; read -r a; " LINE
		     "need\"; read -r a; head -c \"$s\" >/dev/null; " LINE "fail hash x\"",
     LINK_REFUSED},
    {"needs it again and again",
     READ_NONCE "while :; do " LINE "need\"; read -r a; head -c \"$s\" >/dev/null; done",
     LINK_BROKEN},
    {"starts a guest that is silent",
     READ_NONCE LINE "have\"; read -r a; " LINE "ready\"; sleep 1000", LINK_SILENT},
};

static void time_runs_out_whatever_the_other_side_does(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
		/* Long enough for a slow machine where it is not to run out. */
		uint32_t ms = shells[i].how == LINK_SILENT ? 400 : 60000;
		const struct rm_setup m = {.hash = (char[]){"h"},
					   .machine = (char[]){"m"},
					   .size = PROGRAM_SIZE,
					   .shell_ms = i < 2 ? 400 : 60000,
					   .upload_ms = ms,
					   .silent_ms = 400};
		struct far f;
		uint32_t how;

		begin(&f, shells[i].script, &m);
		how = end_of(&f);
		if (how != shells[i].how)
			fail_msg("a shell that %s: %u", shells[i].name, how);
		finish(&f);
	}
}

/* Frames, as printf of any sh takes them. */
#define FRAME(n, type) "\\" n "\\0\\0\\0\\1\\" type "\\0\\0"
#define HELLO FRAME("15", "140") "\\4\\0\\0\\0\\0\\0\\0\\0\\1\\0\\0\\0x"
#define GUEST READ_NONCE LINE "have\"; read -r a; " LINE "ready\"; printf '" HELLO "'; "

/*
 * Airlock is killed in the moment in which it is told something: that is noticed by the word that nobody takes, and not by the end
 * of the channel. The remote is told to end all the same; it was not, and a tree went on for ever.
 */
static void a_word_that_nobody_takes_is_the_end(void **state)
{
	const struct rm_setup m = {.hash = (char[]){"h"},
				   .machine = (char[]){"m"},
				   .size = PROGRAM_SIZE,
				   .shell_ms = 60000,
				   .upload_ms = 60000,
				   .silent_ms = 600000};
	const int64_t until = clock_mono_ns() + WAIT_NS;
	struct timespec nap = {.tv_nsec = 10 * NS_PER_MS};
	struct frame f;
	struct far x;
	pid_t ended = 0;

	(void)state;
	/* RM_START comes, GM_READY goes, and the next thing to come is GM_SHUTDOWN: no sign of life. */
	begin(&x,
	      GUEST "head -c 8 >/dev/null; printf '" FRAME(
		  "4", "100") "\\1\\0\\0\\0'; "
			      "test $(head -c 8 | od -An -tx1 | tr -d ' ') = 0000000001060000 && "
			      "printf '" FRAME("0", "150") "'; sleep 1000",
	      &m);
	assert_int_equal(chan_recv(&x.ch, until, &f, NULL, NULL), 1);
	assert_int_equal(f.type, RM_HELLO);
	/* Its words to us fail from here on; ours would still reach it. */
	assert_int_equal(shutdown(x.ch.fd, SHUT_RD), 0);
	assert_int_equal(chan_send(&x.ch, RM_START, NULL, 0, NULL, 0, until, NULL), 0);
	while (ended == 0 && clock_mono_ns() < until) {
		ended = waitpid(x.helper, NULL, WNOHANG);
		(void)nanosleep(&nap, NULL);
	}
	if (ended != x.helper) {
		(void)kill(x.helper, SIGKILL);
		fail_msg("it goes on for nobody");
	}
	finish(&x);
}

/* owed.h: an answer that nobody asked for ends the session, however small it is. */
static void answers_are_counted(void **state)
{
	static const struct {
		const char *name, *frame;
	} more[] = {{"ready", FRAME("4", "100") "\\1\\0\\0\\0"},
		    {"started", FRAME("10", "101") "\\1\\0\\0\\0\\1\\0\\0\\0"},
		    {"pong", FRAME("10", "105") "\\1\\0\\0\\0\\1\\0\\0\\0"},
		    {"opened", FRAME("4", "142") "\\1\\0\\0\\0"}};
	const struct rm_setup m = {.hash = (char[]){"h"},
				   .machine = (char[]){"m"},
				   .size = PROGRAM_SIZE,
				   .shell_ms = 60000,
				   .upload_ms = 60000,
				   .silent_ms = 60000};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		_cleanup_free_ char *script = NULL;
		uint32_t how;
		struct far x;

		assert_true(asprintf(&script, GUEST "printf '%s'; sleep 1000", more[i].frame) > 0);
		begin(&x, script, &m);
		how = end_of(&x);
		if (how != LINK_BROKEN)
			fail_msg("%s: %u", more[i].name, how);
		finish(&x);
	}
}

/* Without a connection. ---------------------------------------------------------------------- */

#define HOLD_BYTES "60" /* of RM_HOLD, with its header: all that the first guest is sent */
#define CAME(n) FRAME("10", "165") "\\" n "\\0\\0\\0\\0\\0\\0\\0"
#define NO_SUCH_SESSION FRAME("11", "147") "\\2\\0\\0\\0\\1\\0\\0\\0x"

/* Who answers in the place of the guest that waits. */
static const struct {
	const char *name, *script;
	uint8_t next;	   /* what airlock hears then; */
	enum link_end how; /* of RM_LINK */
} others[] = {
    {"goes on", GUEST "printf '" CAME("74") "'; sleep 1000", RM_BACK, 0},
    {"has more than was sent", GUEST "printf '" CAME("75") "'; sleep 1000", RM_LINK, LINK_GONE},
    {"knows of no session", GUEST "printf '" NO_SUCH_SESSION "'; sleep 1000", RM_LINK, LINK_GONE},
    {"ends at once", "exit 1", RM_DIAL, 0},
    {"is no guest", GUEST "printf '\\377\\377\\377\\377\\377\\377\\377\\377'; sleep 1000", RM_DIAL,
     0},
    {"answers something else", GUEST "printf '" FRAME("4", "100") "\\1\\0\\0\\0'; sleep 1000",
     RM_DIAL, 0},
    {"says what nobody asked for",
     GUEST "printf '" CAME("74") FRAME("4", "100") "\\1\\0\\0\\0'; sleep 1000", RM_BACK,
     LINK_BROKEN},
};

static void hear_next(struct far *f, uint8_t type, struct frame *ret)
{
	int r = chan_recv(&f->ch, clock_mono_ns() + WAIT_NS, ret, NULL, NULL);

	if (r <= 0 || ret->type != type)
		fail_msg("%u was to come: %d, %u (%u)", type, r, r > 0 ? ret->type : 0,
			 r > 0 && ret->payload.n ? (unsigned char)ret->payload.p[0] : 0);
}

/* A session that has lost its connection, and asks for another one. */
static void be_away(struct far *f, const struct rm_setup *m, uint32_t grace_ms)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	const struct rm_keep keep = {
	    .grace_ms = grace_ms, .root = (char[]){"/srv"}, .lease = (char[]){"lease"}};
	struct frame got;

	begin(f,
	      GUEST "head -c " HOLD_BYTES " >/dev/null; printf '" FRAME("4", "160") "\\0\\0\\0\\0'",
	      m);
	hear_next(f, RM_HELLO, &got);
	assert_int_equal(rm_keep_put(&b, &keep), 0);
	assert_int_equal(
	    chan_send(&f->ch, RM_KEEP, b.data, b.len, NULL, 0, clock_mono_ns() + WAIT_NS, NULL), 0);
	hear_next(f, RM_AWAY, &got);
	hear_next(f, RM_DIAL, &got);
}

static void another_end_is_judged_as_the_first_one(void **state)
{
	const struct rm_setup m = {.hash = (char[]){"h"},
				   .machine = (char[]){"m"},
				   .size = PROGRAM_SIZE,
				   .shell_ms = 60000,
				   .upload_ms = 60000,
				   .silent_ms = 60000};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		struct frame got;
		struct far x;
		int fds[3];
		pid_t shell;

		be_away(&x, &m, 60000);
		shell = start_shell(others[i].script, fds);
		assert_int_equal(chan_send(&x.ch, RM_DIALED, NULL, 0, fds, 3,
					   clock_mono_ns() + WAIT_NS, NULL),
				 0);
		for (size_t k = 0; k < 3; k++)
			(void)close(fds[k]);
		print_message("one that %s\n", others[i].name);
		if (others[i].next != RM_LINK)
			hear_next(&x, others[i].next, &got);
		if (others[i].how)
			assert_int_equal(end_of(&x), others[i].how);
		finish(&x);
		(void)kill(shell, SIGKILL);
		(void)waitpid(shell, NULL, 0);
	}
}

/* One that says that it goes on and brings nothing does not make the grace longer (B-04). */
static void the_grace_ends_although_somebody_says_that_it_goes_on(void **state)
{
	const struct rm_setup m = {.hash = (char[]){"h"},
				   .machine = (char[]){"m"},
				   .size = PROGRAM_SIZE,
				   .shell_ms = 60000,
				   .upload_ms = 60000,
				   .silent_ms = 60000};
	int64_t until = clock_mono_ns() + WAIT_NS;
	struct frame got = {0};
	struct far x;
	int back = 0;

	(void)state;
	be_away(&x, &m, 2000);
	for (got.type = RM_DIAL; got.type != RM_LINK;) {
		if (got.type == RM_DIAL) {
			int fds[3];
			pid_t shell = start_shell(GUEST "printf '" CAME("74") "'", fds);

			assert_int_equal(chan_send(&x.ch, RM_DIALED, NULL, 0, fds, 3, until, NULL),
					 0);
			for (size_t k = 0; k < 3; k++)
				(void)close(fds[k]);
			(void)waitpid(shell, NULL, 0);
		}
		back += got.type == RM_BACK;
		if (clock_mono_ns() > until || chan_recv(&x.ch, until, &got, NULL, NULL) <= 0)
			fail_msg("after %d times there is no end", back);
	}
	assert_true(back >= 1);
	assert_int_equal((unsigned char)got.payload.p[0], LINK_LATE);
	finish(&x);
}

/* What was not asked for, or comes twice, is no ssh's. */
static void streams_come_when_they_are_asked_for(void **state)
{
	const struct rm_setup m = {.hash = (char[]){"h"},
				   .machine = (char[]){"m"},
				   .size = PROGRAM_SIZE,
				   .shell_ms = 60000,
				   .upload_ms = 60000,
				   .silent_ms = 60000};
	struct frame got;
	struct far x;

	(void)state;
	begin(&x, GUEST "sleep 1000", &m);
	hear_next(&x, RM_HELLO, &got);
	assert_int_equal(
	    chan_send(&x.ch, RM_DIALED, NULL, 0, NULL, 0, clock_mono_ns() + WAIT_NS, NULL), 0);
	assert_int_equal(end_of(&x), LINK_BROKEN);
	finish(&x);
	/* None could be started: it is asked again, after a pause. */
	be_away(&x, &m, 60000);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(chan_send(&x.ch, RM_DIALED, NULL, 0, NULL, 0,
					   clock_mono_ns() + WAIT_NS, NULL),
				 0);
		hear_next(&x, RM_DIAL, &got);
	}
	finish(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_word_that_nobody_takes_is_the_end),
	    cmocka_unit_test(answers_are_counted),
	    cmocka_unit_test(another_end_is_judged_as_the_first_one),
	    cmocka_unit_test(streams_come_when_they_are_asked_for),
	    cmocka_unit_test(the_grace_ends_although_somebody_says_that_it_goes_on),
	    cmocka_unit_test(time_runs_out_whatever_the_other_side_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
