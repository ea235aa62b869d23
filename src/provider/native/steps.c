/* Words for each step that can fail, and the remedy that fits this host. */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

static const char *const names[STEP_COUNT] = {
    [STEP_NONE] = "none",
    [STEP_STORAGE] = "sandbox storage",
    [STEP_SYSTEM] = "system image",
    [STEP_BIND] = "bind",
    [STEP_NAMESPACES] = "user namespace",
    [STEP_IDMAP] = "id map",
    [STEP_IDS] = "change of ids",
    [STEP_ROOT] = "private root",
    [STEP_ETC] = "private /etc",
    [STEP_DEV] = "private /dev",
    [STEP_PROC] = "private /proc",
    [STEP_OVERLAY] = "overlay workspace",
    [STEP_PIVOT] = "change of root",
    [STEP_LOOPBACK] = "loopback network",
    [STEP_HOSTNAME] = "host name",
    [STEP_RLIMITS] = "resource limits",
    [STEP_CAPS] = "dropping capabilities",
    [STEP_LANDLOCK] = "Landlock",
    [STEP_SECCOMP] = "seccomp filter",
    [STEP_EXEC] = "guest program",
};

const char *step_name(enum step step)
{
	return step < STEP_COUNT ? names[step] : "unknown step";
}

/* The number in a /proc/sys file; -1 if the file is not there. */
static long sysctl_value(const char *name)
{
	char path[128], text[32];
	_cleanup_fd_ int fd = -1;
	uint64_t v;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/sys/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n <= 0)
		return -1;
	text[n] = '\0';
	return str_to_u64(text, INT32_MAX, &v) == 0 ? (long)v : -1;
}

/* Ubuntu 24.04 lets the namespace be made and takes its capabilities away; others refuse at once (FR-B010). */
static const char *namespace_remedy(int sys)
{
	if (sysctl_value("kernel/apparmor_restrict_unprivileged_userns") == 1)
		return "AppArmor restricts user namespaces here: install an AppArmor profile with "
		       "`userns,` for airlock-launch (packaging/apparmor has one), or as root: sysctl "
		       "-w kernel.apparmor_restrict_unprivileged_userns=0";
	if (sysctl_value("kernel/unprivileged_userns_clone") == 0)
		return "as root: sysctl -w kernel.unprivileged_userns_clone=1";
	if (sys == ENOSPC || sysctl_value("user/max_user_namespaces") == 0)
		return "as root: sysctl -w user.max_user_namespaces=15000 (and the other user.max_* "
		       "limits, if they are 0)";
	if (sys == EUSERS)
		return "namespaces are nested too deeply: run Airlock outside of other sandboxes";
	if (sys == EINVAL || sys == ENOSYS)
		return "the kernel lacks a namespace kind: Linux 5.12 or newer with USER_NS, PID_NS, "
		       "IPC_NS, UTS_NS, NET_NS and CGROUPS is needed";
	return "user namespaces are refused here, as in most containers: allow them (docker: "
	       "--security-opt seccomp=unconfined --security-opt systempaths=unconfined) or run "
	       "Airlock on the host; inside a chroot they cannot work";
}

static const char *remedy(const struct failure *f)
{
	switch (f->step) {
	case STEP_NAMESPACES:
	case STEP_IDMAP:
	case STEP_IDS:
	case STEP_LOOPBACK:
		return namespace_remedy(f->sys);
	case STEP_ROOT:
	case STEP_PIVOT:
		return f->sys == EPERM || f->sys == EACCES ? namespace_remedy(f->sys)
							   : "Linux 5.12 or newer is needed";
	case STEP_PROC:
		return "an outer container masks parts of /proc, so the kernel refuses a new one: start "
		       "that container with --security-opt systempaths=unconfined (podman: "
		       "--security-opt unmask=ALL), or run Airlock on the host";
	case STEP_OVERLAY:
		return "the file system of the state directory cannot hold an overlay layer (NFS, FUSE "
		       "and overlay itself cannot) or the kernel is older than 5.11: set "
		       "XDG_STATE_HOME to a local ext4, xfs, btrfs or tmpfs, or use --without "
		       "overlay (a private copy instead)";
	case STEP_SECCOMP:
		return "the kernel lacks SECCOMP_FILTER: use one that has it, or --without seccomp";
	case STEP_LANDLOCK:
		return "Landlock refused: use --without landlock";
	case STEP_BIND:
		return f->sys == ELOOP	   ? "the path changed after it was resolved: try again"
		       : f->sys == ENOTSUP ? "only directories and regular files can be bound"
					   : "name an existing directory or file that you may read";
	case STEP_STORAGE:
		return f->sys == ELOOP
			   ? "a link stands where sandbox storage is expected: remove the "
			     "lease with `airlock rm`"
			   : "check that the state directory is yours and has space";
	case STEP_EXEC:
		return "the guest program could not be started: install Airlock again";
	default:
		return "`airlock doctor` tries each layer and says more";
	}
}

int step_explain(const struct failure *f, const struct plan *p, struct err *e)
{
	const char *object = f->object;
	int r;

	(void)p;
	r = err_set(
	    e, f->sys == ENOSPC && f->step != STEP_NAMESPACES ? ERR_NO_SPACE : ERR_UNAVAILABLE,
	    "sandbox not started: %s (%s): %s. Remedy: %s. `airlock doctor` shows every layer",
	    step_name(f->step), object, strerror(f->sys), remedy(f));
	if (e)
		e->sys = f->sys;
	return r;
}
