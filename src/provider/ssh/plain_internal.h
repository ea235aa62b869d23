/*
 * plain_internal.h: private to plain.c (commands, events, the end), plain_start.c (how it begins, what is left), plain_port.c and plain_late.c.
 */
#ifndef AIRLOCK_PROVIDER_SSH_PLAIN_INTERNAL_H
#define AIRLOCK_PROVIDER_SSH_PLAIN_INTERNAL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/buf.h"
#include "os/process.h"
#include "provider/provider.h"
#include "provider/ssh/plainscript.h"
#include "provider/ssh/target.h"

#define PLAIN_PORTS 16
#define PLAIN_SEEN 128	   /* commands whose marks are known at once */
#define PLAIN_SAID_MAX 256 /* of the session that stays: its words are short */
#define PLAIN_LINE_ROOM ((size_t)16 << 20)

struct plain_command {
	struct plain_command *next;
	uint32_t id;
	unsigned number;
	pid_t relay;		  /* -1: reaped */
	int64_t due_ns;		  /* its login shell is to have started our script */
	bool begun, over, warned; /* it has; its end is known; it was due once (plain_late.c) */
};

struct plain {
	struct sandbox sb;
	struct sandbox *local; /* one ssh each, ended with its relay if we are */
	struct ssh_target target;
	struct plain_place place; /* owned strings */
	char *control, *inside, *mark, *lease_dir;
	struct process watch;
	pid_t watch_relay;
	int ask, hear, epfd, clock;
	int64_t login_ns; /* what the first login took */
	char said[PLAIN_SAID_MAX];
	size_t said_len;
	unsigned number;
	struct plain_command *commands;
	atomic_bool *seen; /* shared with the relays: [0] of the session that stays */
	struct sandbox
	    *way[PLAIN_PORTS]; /* a connection each, by which a port of ours is met there */
	unsigned ways_len;
	bool ended;
	bool opened; /* that machine was asked for the run's directory */
	bool gone;   /* the run's directory is not there any more: that machine said so */
	char *gateway[4];
};

/* Of one session of ssh. */
struct plain_ends {
	int in[2], out[2], err[2];
};

extern const struct provider_ops provider_ssh_plain;

int plain_make_ends(struct plain_ends *x, struct err *e);
void plain_close_ends(struct plain_ends *x);
/* ssh's words. first: of the session whose connection others share. *ret is a heap vector. */
int plain_argv(const struct plain *p, bool first, char ***ret, struct err *e);
/* slot: which of p->seen; 0 is that of the session that stays. The child, or negative errno. */
pid_t plain_relay(struct plain *p, const struct plain_ends *x, const struct exec_spec *io,
		  const struct buf *head, size_t slot, struct err *e);
/* Which of p->seen is a command's. */
size_t plain_slot(unsigned number);
void plain_end_relay(struct plain_command *c);
/* plain_late.c. 0 or negative errno; needs p->epfd. */
int plain_late_init(struct plain *p);
/* One that was just started, and is in the list. */
void plain_late_watch(struct plain *p, struct plain_command *c);
/* Remembers who has begun: a slot is about to be another's. */
void plain_late_keep(struct plain *p);
/* True: one has not begun in time; p->sb.why says so, and it never will. */
bool plain_late(struct plain *p);
/* A line for the session that stays. */
void plain_ask(struct plain *p, const char *line);
/* Takes what that says, for so long; true: the word was there. At its end p->hear is closed. */
bool plain_heard(struct plain *p, const char *word, int ms);
int plain_exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e);
int plain_next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e);
/* As in struct provider_ops. */
int plain_socket(struct sandbox *sb);
int plain_publish(struct sandbox *sb, uint16_t port, uint16_t *ret_port, const volatile int *cancel,
		  struct err *e);
/* Closes what was published. */
void plain_unpublish(struct plain *p);
/* Ends everything there that can be told, everything here, and frees it; also one that is half up. */
void plain_end(struct plain *p);

#endif
