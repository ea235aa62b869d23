/*
 * Policy: what runs on another machine with --remote-sandbox gets what it would get here: the same plan, judged by the same plan_check, built by
 * the same launcher. The workspace that landed is a read-only layer; the run's own layer, home and tmp lie beside it. Whoever asks names no path
 * of the host but the run's directory and our own programs, so there is nothing to bind. Not done here: the landing, and what comes back.
 */
#include "provider/native/twin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "provider/native.h"
#include "provider/native/fill.h"
#include "provider/native_storage.h"
#include "wire/remote_box.h"

#define INSIDE "/workspace"
#define HOSTNAME "airlock"

/* DIRECTORY/.airlock-runtime, of .../runs/<lease>. */
static char *runtime_of(const char *run)
{
	char *up = strdup(run), *slash;

	for (int i = 0; up && i < 2; i++) {
		slash = strrchr(up, '/');
		if (!slash || slash == up) {
			free(up);
			return NULL;
		}
		*slash = '\0';
	}
	return up;
}

static int fill(const struct rm_box *m, struct plan *p, struct err *e)
{
	p->guest = strdup(m->guest);
	p->gateway = m->gateway_path[0] ? strdup(m->gateway_path) : NULL;
	/* Its last part names a cgroup as well: the run's own. */
	if (asprintf(&p->lease_dir, "%s/" REMOTE_BOX "/%s", m->run, path_base(m->run)) < 0)
		p->lease_dir = NULL;
	p->state_dir = runtime_of(m->run);
	p->inside = strdup(INSIDE);
	p->hostname = strdup(HOSTNAME);
	p->layers[0] = path_join(m->run, "workspace");
	p->layers_len = 1;
	if (!p->guest || !p->lease_dir || !p->state_dir || !p->inside || !p->hostname ||
	    !p->layers[0] || (m->gateway_path[0] && !p->gateway))
		return err_set(e, ERR_INVALID, "sandbox plan: %s is no run's directory", m->run);
	return plan_forbid(p, NULL, getenv("HOME"), e);
}

static int make_storage(struct plan *p, struct err *e)
{
	char *slash = strrchr(p->lease_dir, '/');
	bool root = geteuid() == 0;
	int r;

	*slash = '\0';
	r = mkdir(p->lease_dir, 0700) < 0 && errno != EEXIST ? -errno : 0;
	*slash = '/';
	if (r == 0 && mkdir(p->lease_dir, 0700) < 0 && errno != EEXIST)
		r = -errno;
	/* Its user walks through it; what is above stays the account's, so it gets there by descriptor alone. */
	if (r == 0 && root && lchown(p->lease_dir, p->uid_host, p->gid_host) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, -r, "sandbox storage %s", p->lease_dir);
	r = storage_make(p->lease_dir, root ? p->uid_host : (uid_t)-1,
			 root ? p->gid_host : (gid_t)-1, e);
	if (r == 0 && (p->without & WITHOUT_OVERLAY))
		r = native_copy_layers(p, e);
	return r;
}

/*
 * Our programs lie in a directory of mode 0700 with mode 0700 themselves: root's sandbox has another user, who is to run them and sees
 * nothing else of that directory.
 */
static int open_up(const char *program, struct err *e)
{
	_cleanup_fd_ int fd =
	    program ? open(program, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;

	if (!program || geteuid() != 0)
		return 0;
	return fd < 0 || fchmod(fd, 0755) < 0 ? err_sys(e, errno, "open up %s", program) : 0;
}

int twin_plan(struct view v, struct plan *p, struct err *e)
{
	struct rm_box m = {0};
	int r = rm_box_get(v, &m);

	*p = (struct plan){.net = m.net, .without = m.without};
	p->memory_bytes = m.memory_bytes;
	p->pids = m.pids;
	p->cpu_milli = m.cpu_milli;
	if (r < 0 || !m.run[0] || !m.guest[0])
		r = err_set(e, ERR_PROTOCOL, "airlock-launch: malformed request for a sandbox");
	if (r == 0)
		r = plan_ids(p, e);
	if (r == 0)
		r = fill(&m, p, e);
	rm_box_done(&m);
	if (r == 0)
		r = plan_check(p, e);
	if (r == 0)
		r = open_up(p->guest, e);
	if (r == 0)
		r = open_up(p->gateway, e);
	return r < 0 ? r : make_storage(p, e);
}
