/*
 * guestlink.h: requests to a guest and its events (wire/guest.h), from the client's side of a channel.
 *
 * Who sits at the channel's other end (airlock-launch, airlock-remote) is trusted; what it hands on from the guest was decoded
 * there or is decoded here, strictly. Shared by the providers that have a guest.
 */
#ifndef AIRLOCK_PROVIDER_GUESTLINK_H
#define AIRLOCK_PROVIDER_GUESTLINK_H

#include "os/chan.h"
#include "provider/provider.h"
#include "wire/guest.h"

#define GUESTLINK_SEND_MS 5000

struct guestlink {
	struct chan ch;
	const char *peer; /* the program at the other end, for messages */
	uint32_t next_id, oom_seen, oom_new;
	bool ended; /* GM_ENDED came, or the peer is gone */
	/* What the peer says beside the events of guest.h: 0; 1: it was the end; -EPROTO. NULL: nothing. */
	int (*other)(struct guestlink *g, const struct frame *f);
};

/* Takes fd over. */
void guestlink_init(struct guestlink *g, int fd, const char *peer);
/* As in struct provider_ops. A guest that only chatters keeps nobody in here: an event SE_STARTED of id 0, which is no command's. */
int guestlink_next_event(struct guestlink *g, struct sandbox_event *ret, struct err *e);
int guestlink_exec(struct guestlink *g, const struct exec_spec *x, uint32_t *ret_id, struct err *e);
int guestlink_signal(struct guestlink *g, uint32_t id, int signo, struct err *e);
int guestlink_winsize(struct guestlink *g, uint32_t id, unsigned rows, unsigned cols);
int guestlink_pack(struct guestlink *g, int out_fd, uint32_t *ret_id, struct err *e);
/* GM_SHUTDOWN, then waits for GM_ENDED or the peer's end. */
void guestlink_shutdown(struct guestlink *g, int64_t deadline_ns);
/* One request. b's error is told. */
int guestlink_request(struct guestlink *g, uint8_t type, const struct buf *b, const int *fds,
		      size_t nfds, struct err *e);

#endif
