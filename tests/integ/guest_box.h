/*
 * guest_box.h: a test plays airlock-launch for the real airlock-guest, without a sandbox around it.
 *
 * PLAIN: an ordinary process, which must be a sub-reaper by itself. PID1: first process of a new
 * pid namespace with its own /proc, as in a sandbox (needs root or user namespaces).
 */
#ifndef AIRLOCK_TESTS_GUEST_BOX_H
#define AIRLOCK_TESTS_GUEST_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "os/chan.h"
#include "wire/guest.h"

#define BOX_CMDS 300

enum box_mode { BOX_PLAIN, BOX_PID1 };

struct box_cmd {
	uint32_t id;
	int in, out, err; /* our ends, -1 when closed */
	const char *input;
	size_t input_left;
	bool input_broke; /* the reader closed early: EPIPE */
	struct buf got_out, got_err;
	bool hold_out; /* do not read its output */
	bool started, failed, exited, packed, after_last;
	uint32_t pid;
	struct gm_failed why;
	struct gm_exited exit;
	struct gm_packed pack;
};

struct box {
	pid_t pid; /* our child: the guest, or the parent of pid 1 */
	struct chan chan;
	struct box_cmd *cmds;
	size_t n;
	uint64_t pongs;
	bool eof;
};

#define BOX_TTY 1u
#define BOX_NO_STDERR 2u

/* When not 0 the guest and its commands run as this user with at most box_nproc processes. */
extern unsigned box_uid, box_nproc;

void box_start(struct box *b, enum box_mode mode, int upper);
/* Exact argv and env; cwd "/" if NULL. input NULL: stdin is an empty pipe that is closed at once. */
struct box_cmd *box_exec(struct box *b, char *const *argv, char *const *env, const char *cwd,
			 const char *input, size_t input_len, unsigned flags);
/* sh -c script with PATH set. */
struct box_cmd *box_sh(struct box *b, const char *script);
struct box_cmd *box_pack(struct box *b);
void box_send(struct box *b, uint8_t type, const struct buf *payload);
void box_signal(struct box *b, const struct box_cmd *c, int signo);
/* One round of poll over everything; false when deadline_ns has passed. */
bool box_turn(struct box *b, int64_t deadline_ns);
/* Until the command's last event and the end of its output; fails the test after 30 s. */
void box_finish(struct box *b, struct box_cmd *c);
/* box_sh and box_finish. */
struct box_cmd *box_run(struct box *b, const char *script);
/* Until the output of c holds text. */
void box_expect(struct box *b, struct box_cmd *c, const char *text);
/* SHUTDOWN, end of file, wait: returns the wait status of our child. */
int box_stop(struct box *b);
/* True if a process with this word in its command line lives (no zombie). */
bool box_alive(const char *word);

#endif
