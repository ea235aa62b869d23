#include "bridge/pace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define NOTE_NS NS_PER_MS /* between two looks at the board, and two notes on it */

/* Somebody else's file, or one that others can write to, is not taken: /dev/shm is everybody's. */
static int open_in(const char *dir, const char *name)
{
	_cleanup_fd_ int d = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (d < 0)
		return -1;
	fd = openat(d, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 077) || st.st_nlink != 1)
		return -1;
	/* With its memory, also where it had a size before: a page that a full tmpfs cannot give is a SIGBUS. */
	if (posix_fallocate(fd, 0, sizeof(struct pace_board)) != 0)
		return -1;
	return TAKE_FD(fd);
}

int pace_board_open(void)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	char name[48];
	struct stat st;
	int fd = -1;

	(void)snprintf(name, sizeof(name), "airlock-board-%u", (unsigned)geteuid());
	/* Another user's, after su: then it is not where this one's other runs look. */
	if (run && *run == '/' && stat(run, &st) == 0 && st.st_uid == geteuid())
		fd = open_in(run, name);
	/* Where nobody else can have put a file of that name first. */
	if (fd < 0 && geteuid() == 0)
		fd = open_in("/run", name);
	return fd >= 0 ? fd : open_in("/dev/shm", name);
}

void pace_init(struct pace *p, int fd, struct view run_id)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
	struct stat st;
	void *m;

	*p = (struct pace){.beside_ns = INT64_MIN / 2};
	for (size_t i = 0; i < run_id.n; i++)
		h = (h ^ (unsigned char)run_id.p[i]) * UINT64_C(1099511628211);
	p->who = h ? h : 1;
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(*p->board))
		return;
	m = mmap(NULL, sizeof(*p->board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m != MAP_FAILED)
		p->board = m;
}

void pace_forget(struct pace *p)
{
	if (p->board)
		(void)munmap(p->board, sizeof(*p->board));
	p->board = NULL;
}

/* Another run was at work at that time. What stands there is any number: one from the future is nobody's. */
static void see(struct pace *p, const struct pace_slot *s, int64_t now)
{
	uint64_t who = __atomic_load_n(&s->who, __ATOMIC_RELAXED);
	int64_t at = __atomic_load_n(&s->at_ns, __ATOMIC_RELAXED);

	if (who && who != p->who && at <= now && at > p->beside_ns)
		p->beside_ns = at;
}

/* The own slot is read before it is written: another run may have the same. */
static void note(struct pace *p, int64_t now)
{
	struct pace_slot *s = &p->board->slot[p->who % PACE_SLOTS];

	if (now - p->noted_ns < NOTE_NS)
		return;
	p->noted_ns = now;
	see(p, s, now);
	__atomic_store_n(&s->who, p->who, __ATOMIC_RELAXED);
	__atomic_store_n(&s->at_ns, now, __ATOMIC_RELAXED);
}

static bool beside(struct pace *p, int64_t now)
{
	if (!p->board)
		return false;
	if (now - p->looked_ns >= NOTE_NS) {
		p->looked_ns = now;
		for (size_t i = 0; i < PACE_SLOTS; i++)
			see(p, &p->board->slot[i], now);
	}
	return now - p->beside_ns < PACE_BESIDE_MS * NS_PER_MS;
}

/* The same sum as a bucket of tokens, without one: due_ns runs ahead of the clock by what was taken. */
static int64_t spend(struct pace *p, unsigned rate, int64_t parts, int64_t now)
{
	int64_t each = NS_PER_S / (rate ? rate : 1), at;

	if (!beside(p, now)) {
		p->due_ns = now;
		return now;
	}
	if (p->due_ns < now)
		p->due_ns = now;
	at = p->due_ns - PACE_BURST * each;
	if (p->due_ns < now + PACE_DEBT_MS * NS_PER_MS)
		p->due_ns += parts * each / PACE_PARTS;
	return at > now ? at : now;
}

int64_t pace_request(struct pace *p, unsigned rate, bool only, int64_t now)
{
	if (p->board)
		note(p, now);
	return only ? now : spend(p, rate, PACE_PARTS, now);
}

int64_t pace_bytes(struct pace *p, unsigned rate, uint64_t n, int64_t now)
{
	if (p->board)
		note(p, now);
	return spend(p, rate, (int64_t)(n / (PACE_REQUEST_BYTES / PACE_PARTS)), now);
}
