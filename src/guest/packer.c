#include "guest/packer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/fork.h"
#include "guest/pack.h"

static _Noreturn void run(int ctl, uint32_t id, int upper, int out)
{
	struct gm_packed m = {.id = id};
	struct pack_result res = {0};
	int work, r;

	fork_close((int[]){ctl, upper, out}, 3);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	work = open(GUEST_WORKSPACE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = pack_write(upper, work, out, &res);
	(void)close(out);
	m.error = (uint32_t)-r;
	m.members = res.members;
	m.unreadable = res.unreadable;
	m.shrunk = res.shrunk;
	m.left_out = res.left_out;
	while (send(ctl, &m, sizeof(m), MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
	_exit(0);
}

int packer_start(struct packer *p, uint32_t id, int upper, int out)
{
	_cleanup_fd_ int mine = -1, its = -1;
	int sv[2];
	pid_t pid;

	if (p->ctl >= 0)
		return -EBUSY;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	mine = sv[0];
	its = sv[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		run(its, id, upper, out);
	*p = (struct packer){.id = id, .ctl = TAKE_FD(mine), .pid = pid};
	return 0;
}

void packer_hear(struct packer *p, struct outbox *o)
{
	struct gm_packed m, none = {.id = p->id, .error = ECANCELED};
	ssize_t n;

	if (p->ctl < 0)
		return;
	do {
		n = recv(p->ctl, &m, sizeof(m), MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	outbox_packed(o, n == (ssize_t)sizeof(m) ? &m : &none);
	cleanup_fd(&p->ctl);
}

void packer_kill(const struct packer *p)
{
	if (p->pid)
		(void)kill(p->pid, SIGKILL);
}
