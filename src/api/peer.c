#include "api/peer.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define BURST_NS (PEER_BURST_MS * NS_PER_MS)

void peer_judge_init(struct peer_judge *j, const struct peer_users *more)
{
	*j = (struct peer_judge){.more = *more, .asker.fd = -1, .credit_ns = BURST_NS};
}

void peer_judge_done(struct peer_judge *j)
{
	sockend_done(&j->asker);
	free(j->v);
	j->v = NULL;
	j->n = j->room = 0;
}

static bool named(const struct peer_judge *j, uid_t uid)
{
	for (size_t i = 0; i < j->more.n; i++)
		if (j->more.uid[i] == uid)
			return true;
	return false;
}

/* --- a look at the processes -------------------------------------------------------------- */

static void remember(struct peer_judge *j, uint64_t inode, bool inside)
{
	if (j->n == j->room) {
		size_t room = j->room ? j->room * 2 : 256;
		struct peer_socket *v =
		    room <= PEER_SOCKETS_MAX ? realloc(j->v, room * sizeof(*v)) : NULL;

		if (!v)
			return;
		j->v = v;
		j->room = room;
	}
	j->v[j->n++] = (struct peer_socket){inode, inside};
}

static void take_sockets(struct peer_judge *j, int fds, bool inside)
{
	_cleanup_dir_ DIR *d = fdopendir(fds);
	const struct dirent *at;
	char text[40];
	uint64_t inode;

	if (!d) {
		(void)close(fds);
		return;
	}
	while ((at = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), at->d_name, text, sizeof(text) - 1);
		size_t k = strlen("socket:[");

		if (n <= (ssize_t)k || text[n - 1] != ']')
			continue;
		text[n - 1] = '\0';
		if (str_starts(text, "socket:[") && str_to_u64(text + k, UINT64_MAX, &inode) == 0)
			remember(j, inode, inside);
	}
}

static int by_inode(const void *a, const void *b)
{
	const struct peer_socket *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

/* One that a process of another namespace has too is that one's: passing it on makes nobody the board. */
static void merge(struct peer_judge *j)
{
	size_t o = 0;

	if (j->n)
		qsort(j->v, j->n, sizeof(*j->v), by_inode);
	for (size_t i = 0; i < j->n; i++) {
		if (o && j->v[o - 1].inode == j->v[i].inode)
			j->v[o - 1].inside |= j->v[i].inside;
		else
			j->v[o++] = j->v[i];
	}
	j->n = o;
}

static void look(struct peer_judge *j)
{
	struct stat own, st;
	_cleanup_dir_ DIR *d = stat("/proc/self/ns/user", &own) == 0 ? opendir("/proc") : NULL;
	uid_t self = geteuid();
	const struct dirent *at;
	char path[64];

	j->n = 0;
	while (d && (at = readdir(d))) {
		bool inside;
		int fds;

		if (!isdigit((unsigned char)at->d_name[0]))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s", at->d_name);
		if (stat(path, &st) < 0 ||
		    (st.st_uid != self && st.st_uid != 0 && !named(j, st.st_uid)))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/fd", at->d_name);
		fds = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds < 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/ns/user", at->d_name);
		inside = stat(path, &st) < 0 || st.st_dev != own.st_dev || st.st_ino != own.st_ino;
		take_sockets(j, fds, inside);
	}
	merge(j);
}

/* A third of the time that passes, so that looks take a quarter of it all. */
static void earn(struct peer_judge *j, int64_t now_ns)
{
	int64_t more = j->credit_at_ns ? (now_ns - j->credit_at_ns) / 3 : 0;

	j->credit_ns = more > BURST_NS - j->credit_ns ? BURST_NS : j->credit_ns + more;
	j->credit_at_ns = now_ns;
}

static const struct peer_socket *seen(const struct peer_judge *j, uint64_t inode, int64_t now_ns)
{
	const struct peer_socket key = {.inode = inode};

	if (!j->looked_ns || now_ns - j->looked_ns > PEER_FRESH_MS * NS_PER_MS || !j->n)
		return NULL;
	return bsearch(&key, j->v, j->n, sizeof(key), by_inode);
}

/* 0: judged; else when there may be a look. */
static int64_t whose(struct peer_judge *j, struct peer *p, int64_t now_ns)
{
	const struct peer_socket *s = seen(j, p->end.inode, now_ns);

	if (!s) {
		int64_t from = clock_mono_ns();

		earn(j, from);
		if (j->credit_ns <= 0)
			return from + NS_PER_MS - 3 * j->credit_ns;
		look(j);
		j->looks++;
		j->looked_ns = from;
		j->credit_ns -= clock_mono_ns() - from;
		s = seen(j, p->end.inode, from);
	}
	p->state = s && !s->inside ? PEER_TRUSTED : PEER_STRANGER;
	return 0;
}

/* --- judgement ---------------------------------------------------------------------------- */

/* By the number alone, as far as that goes: PEER_UNKNOWN: it is to be seen whose process it is. */
static void by_number(struct peer_judge *j, struct peer *p)
{
	uid_t self = geteuid();

	p->state = PEER_STRANGER;
	if (!sockend_find(&j->asker, p->fd, &p->end) || !p->end.inode)
		return;
	/* A sandbox that root started has a number of its own outside, and none of its processes is ever host root. */
	if (p->end.uid == 0)
		p->state = PEER_TRUSTED;
	else if (p->end.uid == self)
		p->state = PEER_UNKNOWN;
	else if (named(j, p->end.uid))
		/* Only root sees which namespace another user's process is in. */
		p->state = self != 0 ? PEER_TRUSTED : PEER_UNKNOWN;
}

int64_t peer_due(struct peer_judge *j, struct peer *p, int64_t now_ns)
{
	struct sockaddr_storage sa = {0};
	socklen_t n = sizeof(sa);

	if (p->state != PEER_UNKNOWN)
		return 0;
	if (getsockname(p->fd, (struct sockaddr *)&sa, &n) == 0 && sa.ss_family == AF_UNIX) {
		p->state = PEER_TRUSTED;
		return 0;
	}
	by_number(j, p);
	return p->state == PEER_UNKNOWN ? whose(j, p, now_ns) : 0;
}

bool peer_trusted(struct peer_judge *j, struct peer *p)
{
	return peer_due(j, p, clock_mono_ns()) == 0 && p->state == PEER_TRUSTED;
}
