/*
 * hostile-guest: stands in for airlock-guest and does what /workspace/mode says (B-04).
 *
 * It shows that nothing inside is a boundary control: the whole guest is replaced, and airlock-launch and
 * airlock-unpack must still hold. Speaks the frames by hand, so that it can say what ours cannot. Static; uses
 * nothing of Airlock but the numbers of wire/guest.h and wire/frame.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	SOCK = 3,
	EXEC = 2,
	PACK = 5,
	READY = 64,
	STARTED,
	FAILED,
	EXITED,
	PACKED,
	PONG,
	ENDED,
	ERROR,
	OOM
};

static uint8_t in[1 << 20];
static size_t have;
static int fds[16], fds_len;

static uint32_t u32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void all(int fd, const void *p, size_t n)
{
	for (const char *c = p; n;) {
		ssize_t k = write(fd, c, n);

		if (k <= 0)
			pause();
		c += k;
		n -= (size_t)k;
	}
}

static void frame(uint8_t type, const uint32_t *words, size_t n)
{
	uint8_t b[8 + 64] = {0};

	put(b, (uint32_t)(4 * n));
	b[4] = 1;
	b[5] = type;
	for (size_t i = 0; i < n; i++)
		put(b + 8 + 4 * i, words[i]);
	all(SOCK, b, 8 + 4 * n);
}

#define SAY(type, ...) \
	frame(type, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

/* Waits for a request of that type; its id. What came before is dropped. */
static uint32_t await(uint8_t type)
{
	for (;;) {
		union {
			char b[CMSG_SPACE(sizeof(fds))];
			struct cmsghdr h;
		} ctl;
		struct iovec v = {in + have, sizeof(in) - have};
		struct msghdr m = {.msg_iov = &v,
				   .msg_iovlen = 1,
				   .msg_control = &ctl,
				   .msg_controllen = sizeof(ctl)};
		ssize_t n;

		while (have >= 8 && have >= 8 + u32(in)) {
			size_t whole = 8 + u32(in);
			uint8_t got = in[5];
			uint32_t id = u32(in + 8);

			memmove(in, in + whole, have - whole);
			have -= whole;
			if (got == type)
				return id;
		}
		n = recvmsg(SOCK, &m, 0);
		if (n <= 0)
			exit(0);
		have += (size_t)n;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			int k = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

			for (int i = 0; i < k && fds_len < 16; i++)
				memcpy(&fds[fds_len++], CMSG_DATA(c) + (size_t)i * sizeof(int),
				       sizeof(int));
		}
	}
}

static void close_fds(void)
{
	while (fds_len)
		(void)close(fds[--fds_len]);
}

/* A command that seems to run and to end well. */
static void obey(void)
{
	uint32_t id = await(EXEC);

	if (fds_len > 1)
		all(fds[1], "obeyed\n", 7);
	close_fds();
	SAY(STARTED, id, 7);
	SAY(EXITED, id, 0, 0, 0, 0, 0, 0, 0);
}

static void copy(const char *path, int to)
{
	char b[65536];
	int fd = open(path, O_RDONLY);
	ssize_t n;

	while ((n = read(fd, b, sizeof(b))) > 0)
		all(to, b, (size_t)n);
	(void)close(fd);
}

static void send_fd(void)
{
	uint8_t b[12] = {4, 0, 0, 0, 1, READY, 1, 0, 1};
	union {
		char b[CMSG_SPACE(sizeof(int))];
		struct cmsghdr h;
	} ctl = {0};
	struct iovec v = {b, sizeof(b)};
	struct msghdr m = {
	    .msg_iov = &v, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof(ctl)};
	int fd = 4;

	ctl.h.cmsg_len = CMSG_LEN(sizeof(int));
	ctl.h.cmsg_level = SOL_SOCKET;
	ctl.h.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&ctl.h), &fd, sizeof(fd));
	(void)sendmsg(SOCK, &m, 0);
}

static void before_ready(const char *mode)
{
	if (strcmp(mode, "garbage") == 0) {
		uint8_t b[100000];

		for (size_t i = 0; i < sizeof(b); i++)
			b[i] = (uint8_t)(i * 2654435761u >> 13);
		all(SOCK, b, sizeof(b));
	} else if (strcmp(mode, "zeros") == 0) {
		uint8_t b[100000] = {0};

		all(SOCK, b, sizeof(b));
	} else if (strcmp(mode, "length") == 0) {
		all(SOCK, "\xff\xff\xff\xff\x01\x40\x00\x00", 8);
	} else if (strcmp(mode, "version") == 0) {
		SAY(READY, 99);
	} else if (strcmp(mode, "descriptor") == 0) {
		send_fd();
	} else if (strcmp(mode, "gone") == 0) {
		exit(0);
	} else {
		return;
	}
	pause();
}

static void pack(const char *mode)
{
	uint32_t id = await(PACK);

	if (strcmp(mode, "pack-never") == 0) {
		pause();
	} else if (strcmp(mode, "pack-late-exit") == 0) {
		SAY(EXITED, id, 0, 0, 0, 0, 0, 0, 0);
	} else if (strcmp(mode, "pack-endless") == 0) {
		static const char zeros[65536];

		for (;;)
			all(fds[0], zeros, sizeof(zeros));
	} else if (strcmp(mode, "pack-cut") == 0) {
		copy("/workspace/half", fds[0]);
	} else {
		copy("/workspace/stream", fds[0]);
	}
	close_fds();
	SAY(PACKED, id, 0, 0xffffffff, 0xffffffff, 0, 0, 0, 0, 0, 0);
	(void)await(255);
}

int main(void)
{
	char mode[64] = "";
	int fd = open("/workspace/mode", O_RDONLY);
	ssize_t n = read(fd, mode, sizeof(mode) - 1);

	(void)n;
	before_ready(mode);
	SAY(READY, 1);
	if (strcmp(mode, "twice") == 0) {
		SAY(READY, 1);
	} else if (strcmp(mode, "unasked") == 0) {
		SAY(EXITED, 1, 0, 0, 0, 0, 0, 0, 0);
	} else if (strcmp(mode, "request") == 0) {
		SAY(EXEC, 1, 0, 0, 0);
	} else if (strcmp(mode, "as-launch-ended") == 0) {
		SAY(ENDED, 0);
	} else if (strcmp(mode, "as-launch-error") == 0) {
		SAY(ERROR, 1, 0);
	} else if (strcmp(mode, "as-launch-oom") == 0) {
		SAY(OOM, 5);
	} else if (strcmp(mode, "flood") == 0) {
		for (;;)
			SAY(PONG, 0, 0);
	} else if (strcmp(mode, "deaf") == 0) {
		pause();
	} else if (strcmp(mode, "other-id") == 0) {
		SAY(STARTED, await(EXEC) + 1, 7);
	} else if (strcmp(mode, "no-start") == 0) {
		SAY(EXITED, await(EXEC), 0, 0, 0, 0, 0, 0, 0);
	} else if (strcmp(mode, "both-ends") == 0) {
		uint32_t id = await(EXEC);

		SAY(STARTED, id, 7);
		SAY(EXITED, id, 0, 0, 0, 0, 0, 0, 0);
		SAY(EXITED, id, 0, 0, 0, 0, 0, 0, 0);
	} else if (strcmp(mode, "mad-exit") == 0) {
		uint32_t id = await(EXEC);

		SAY(STARTED, id, 7);
		SAY(EXITED, id, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0, 0, 0);
	} else if (strcmp(mode, "step") == 0) {
		/* Raw terminal sequences as the name of a step. */
		SAY(FAILED, await(EXEC), 2, 4, 0x31335b1b);
	} else {
		obey();
		pack(mode);
	}
	for (;;)
		(void)await(255);
}
