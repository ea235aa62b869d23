#include "guest/packer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/delta.h"
#include "guest/fork.h"
#include "guest/pack.h"

static int pack_tree(const struct pack_place *place, int out, struct pack_result *res)
{
	struct delta *d = NULL;
	int r = delta_open(place->index, &d, NULL);

	if (r == 0)
		r = delta_write(d, place->tree, out, res);
	delta_free(d);
	return r;
}

static int pack_layer(const struct pack_place *place, int out, struct pack_result *res)
{
	int work = open(GUEST_WORKSPACE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return pack_write(place->tree, work, out, res);
}

static _Noreturn void run(int ctl, uint32_t id, const struct pack_place *place, int out)
{
	struct gm_packed m = {.id = id};
	struct pack_result res = {0};
	int r;

	fork_close((int[]){ctl, place->tree, place->index, out}, 4);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = place->index < 0 ? pack_layer(place, out, &res) : pack_tree(place, out, &res);
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

int packer_start(struct packer *p, uint32_t id, const struct pack_place *place, int out)
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
		run(its, id, place, out);
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
