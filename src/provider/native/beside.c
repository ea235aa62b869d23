/*
 * Policy: a second task of the child's for the two calls that make the kernel wait, the network namespace and the
 * end of the old root. It has the child's rights over the sandbox's own namespaces and no others, runs nothing but
 * this file, and has ended before the child becomes the guest (beside_end): no foreign code ever runs beside it.
 * Where all processors are busy the child makes both calls itself, at the same points of its way.
 * Not done here: to enter the namespace and to prove that the old root is gone, which the child does itself.
 */
#include "provider/native/beside.h"

#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/guest.h"

/*
 * Safe because: the new namespace belongs to the sandbox's own user namespace, the only one this task has rights in;
 * its one interface is its own loopback.
 */
static int make_net(struct beside *b)
{
	_cleanup_fd_ int fd = -1;
	struct ifreq r = {.ifr_flags = IFF_UP};

	if (unshare(CLONE_NEWNET) < 0)
		return fail(&b->failure, STEP_NAMESPACES, errno, "network");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(&b->failure, STEP_LOOPBACK, errno, "socket");
	memcpy(r.ifr_name, "lo", sizeof("lo"));
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return fail(&b->failure, STEP_LOOPBACK, errno, "lo");
	/*
	 * Safe because: they are unbound, and go to launch and from there to the sandbox's owner: out of a sandbox in which nothing
	 * foreign has run yet.
	 */
	for (unsigned i = 0; i < b->wants_sockets; i++) {
		b->socket[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (b->socket[i] < 0)
			return fail(&b->failure, STEP_LOOPBACK, errno, "socket");
	}
	if (b->alone)
		return 0;
	/* The socket's own namespace, close-on-exec: no path, which the child is busy changing. */
	b->net = ioctl(fd, SIOCGSKNS);
	return b->net < 0 ? fail(&b->failure, STEP_NAMESPACES, errno, "network") : 0;
}

static void tell(int fd)
{
	const uint64_t one = 1;

	/* Never: the counter is far from full. Who waits in vain is ended when the time for a start is over. */
	if (write(fd, &one, sizeof(one)) != sizeof(one))
		_exit(1);
}

static int await(int fd)
{
	uint64_t n;

	return read(fd, &n, sizeof(n)) == sizeof(n) ? 0 : -1;
}

/* Out of every path's reach at once; what takes long is a grace period of the kernel after that. */
static int detach(struct beside *b)
{
	if (umount2(".", MNT_DETACH) < 0)
		return fail(&b->failure, STEP_PIVOT, errno, "detach the old root");
	return 0;
}

bool beside_helps(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN); /* that this process may use */
	struct sysinfo s;

	if (processors < 2)
		return false;
	return sysinfo(&s) < 0 || s.loads[0] >> SI_LOAD_SHIFT < (unsigned long)processors;
}

/*
 * Where launch is busy still, the kernel puts the second task behind the child on the child's processor, and there it stays
 * until the child waits for it: nothing would be done beside anything. On launch's processor it must not stop launch, whose
 * descriptors the child waits for first, so it is a batch task; launch steps aside by itself (launch.c). Where the kernel
 * refuses, that is how it is.
 */
static void send_away(pid_t pid)
{
	const struct sched_param none = {0};
	int here = sched_getcpu();
	cpu_set_t others;

	if (here < 0 || sched_getaffinity(0, sizeof(others), &others) < 0)
		return;
	/* The call itself: musl has no name for it that does anything. */
	(void)syscall(SYS_sched_setscheduler, pid, SCHED_BATCH, &none);
	CPU_CLR(here, &others);
	(void)sched_setaffinity(pid, sizeof(others), &others);
}

static int beside_main(void *arg)
{
	struct beside *b = arg;
	int r = b->wants_net ? make_net(b) : 0;

	tell(b->made);
	if (r < 0)
		_exit(1);
	if (await(b->pivoted) < 0) {
		(void)fail(&b->failure, STEP_PIVOT, errno, "event");
		_exit(1);
	}
	_exit(detach(b) < 0 ? 1 : 0);
}

int beside_start(struct beside *b, const struct plan *p, bool helps, void *stack, struct failure *f)
{
	*b = (struct beside){.wants_net = p->net == NET_NONE,
			     .net = -1,
			     .wants_sockets = p->sockets,
			     .alone = !helps};
	if (b->alone)
		return 0;
	b->made = eventfd(0, EFD_CLOEXEC);
	b->pivoted = eventfd(0, EFD_CLOEXEC);
	/* The places of the guest's descriptors are taken, so these outlive the arranging of those. */
	if (b->made <= GUEST_FD_UPPER || b->pivoted <= GUEST_FD_UPPER)
		return fail(f, STEP_EXEC, b->made < 0 || b->pivoted < 0 ? errno : EBADF, "event");
	b->pid = clone(beside_main, stack, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, b);
	if (b->pid < 0)
		return fail(f, STEP_NAMESPACES, errno, "clone");
	send_away(b->pid);
	return 0;
}

int beside_enter_net(struct beside *b, struct failure *f)
{
	if (b->alone) {
		if (b->wants_net)
			(void)make_net(b);
	} else if (await(b->made) < 0) {
		return fail(f, STEP_NAMESPACES, errno, "event");
	}
	if (b->failure.step != STEP_NONE) {
		*f = b->failure;
		return -1;
	}
	if (b->wants_net && !b->alone && setns(b->net, CLONE_NEWNET) < 0)
		return fail(f, STEP_NAMESPACES, errno, "network");
	return 0;
}

int beside_hand_over(struct beside *b, int sync, struct failure *f)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(b->socket))];
	} u;
	char word = 0;
	struct iovec iov = {.iov_base = &word, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf};
	size_t n = sizeof(int) * b->wants_sockets;
	struct cmsghdr *h;

	if (n == 0)
		return 0;
	m.msg_controllen = CMSG_SPACE(n);
	memset(u.buf, 0, m.msg_controllen);
	h = CMSG_FIRSTHDR(&m);
	if (!h)
		return fail(f, STEP_LOOPBACK, EINVAL, "sockets");
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(n);
	memcpy(CMSG_DATA(h), b->socket, n);
	/* Close-on-exec: these end with the child's execve. */
	return sendmsg(sync, &m, MSG_NOSIGNAL) < 0 ? fail(f, STEP_LOOPBACK, errno, "sockets") : 0;
}

void beside_pivoted(struct beside *b)
{
	if (b->alone)
		(void)detach(b);
	else
		tell(b->pivoted);
}

int beside_end(struct beside *b, struct failure *f)
{
	siginfo_t si = {0};
	int r;

	if (b->alone) {
		if (b->failure.step != STEP_NONE)
			*f = b->failure;
		return b->failure.step == STEP_NONE ? 0 : -1;
	}
	do {
		r = waitid(P_PID, (id_t)b->pid, &si, WEXITED | __WALL);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return fail(f, STEP_PIVOT, errno, "waitid");
	if (si.si_code == CLD_EXITED && si.si_status == 0)
		return 0;
	if (b->failure.step == STEP_NONE)
		return fail(f, STEP_PIVOT, ECHILD, "detach the old root");
	*f = b->failure;
	return -1;
}
