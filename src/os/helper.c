#include "os/helper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/self.h"

int helper_start(struct helper *h, const char *name, struct chan *ch, struct err *e)
{
	int sv[2], r = self_helper(name, &h->path, e);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return err_sys(e, errno, "make a channel to %s", name);
	chan_init(ch, sv[0], false);
	h->argv[0] = h->path;
	h->argv[1] = h->envp[0] = NULL;
	h->popts = (struct process_opts)PROCESS_OPTS_INIT;
	h->popts.argv = h->argv;
	h->popts.envp = h->envp;
	h->popts.in_fd = sv[1];
	r = process_start(&h->proc, &h->popts, e);
	(void)close(sv[1]);
	h->started = r == 0;
	if (r < 0)
		helper_kill(h);
	return r;
}

void helper_kill(struct helper *h)
{
	if (h->started)
		process_kill(&h->proc);
	h->started = false;
	free(h->path);
	h->path = NULL;
}
