/* User namespace, id map, and the namespaces that need one. */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/stat.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define BAD_UNSHARE_FLAG \
	1 /* a bit of clone's exit signal: the kernel answers EINVAL before any permission  \
			    */

bool probe_filtered_unshare(int flag)
{
	return unshare(flag | BAD_UNSHARE_FLAG) < 0 && errno != EINVAL;
}

/* True if id lies in a map file of this process's own namespace. */
static bool id_mapped(const char *map, uint64_t id)
{
	_cleanup_file_ FILE *f = fopen(map, "re");
	unsigned long long inside, outside, count;

	if (!f)
		return true; /* no evidence against it */
	while (fscanf(f, "%llu %llu %llu", &inside, &outside, &count) == 3)
		if (id >= inside && id - inside < count)
			return true;
	return false;
}

static uint64_t caps_effective(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};

	if (syscall(SYS_capget, &h, d) < 0)
		return 0;
	return d[0].effective | (uint64_t)d[1].effective << 32;
}

static bool has_cap(int cap)
{
	return caps_effective() >> cap & 1;
}

/*
 * Proved by "/" that is no root of a mount, or by process 1 having another root. A chroot into a mount point
 * seen from inside a container stays unproved.
 */
static bool in_chroot(void)
{
	struct statx sx;
	struct stat own, first;

	if (statx(AT_FDCWD, "/", 0, STATX_INO, &sx) == 0 &&
	    (sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) &&
	    !(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return true;
	return stat("/", &own) == 0 && stat("/proc/1/root/", &first) == 0 &&
	       (own.st_dev != first.st_dev || own.st_ino != first.st_ino);
}

/* The active modules that may refuse a user namespace, as the kernel lists them. */
static bool lsm_can_refuse(char *names, size_t n)
{
	_cleanup_fd_ int fd = open("/sys/kernel/security/lsm", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, names, n - 1);

	if (got <= 0) {
		(void)snprintf(names, n, "modules unknown: /sys/kernel/security is not readable");
		return access("/sys/fs/selinux", F_OK) == 0 ||
		       access("/sys/module/apparmor/parameters/enabled", F_OK) == 0;
	}
	names[got] = '\0';
	return strstr(names, "selinux") || strstr(names, "apparmor") || strstr(names, "smack") ||
	       strstr(names, "tomoyo") || strstr(names, "bpf");
}

enum cause userns_cause(const struct userns_facts *f)
{
	if (!f->proc && f->step != USERNS_CREATE)
		return CAUSE_PROC_ABSENT;
	if (f->step == USERNS_MAP) {
		if (f->apparmor_sysctl == 1)
			return CAUSE_USERNS_APPARMOR;
		if (!f->host_id_mapped)
			return CAUSE_IDMAP_RANGE;
		return f->setid_caps ? CAUSE_CAPS_WITHHELD : CAUSE_IDMAP_CAPS;
	}
	if (f->filtered)
		return CAUSE_SECCOMP_OUTER;
	if (f->step == USERNS_USE)
		return f->apparmor_sysctl == 1 ? CAUSE_USERNS_APPARMOR : CAUSE_CAPS_WITHHELD;
	switch (f->sys) {
	case EINVAL:
	case ENOSYS:
		return CAUSE_USERNS_KERNEL;
	case ENOSPC:
	case EUSERS:
		return f->max == 0 ? CAUSE_USERNS_MAX_ZERO : CAUSE_USERNS_LIMIT;
	case EPERM:
	case EACCES:
		break;
	default:
		return CAUSE_UNKNOWN;
	}
	if (f->proc && !f->kernel)
		return CAUSE_USERNS_KERNEL;
	if (f->clone_sysctl == 0 && !f->privileged)
		return CAUSE_USERNS_CLONE_SYSCTL;
	if (f->chrooted)
		return CAUSE_USERNS_CHROOT;
	if (!f->mapped)
		return CAUSE_USERNS_UNMAPPED;
	if (f->apparmor_sysctl == 1)
		return CAUSE_USERNS_APPARMOR;
	return f->sys == EACCES || f->lsm ? CAUSE_USERNS_LSM : CAUSE_USERNS_REFUSED;
}

static void gather(const struct probe_env *env, struct userns_facts *f, char *lsm, size_t n)
{
	uid_t euid = geteuid();

	*f = (struct userns_facts){
	    .privileged = has_cap(CAP_SYS_ADMIN),
	    .proc = access("/proc/self/status", F_OK) == 0,
	    .kernel = access("/proc/self/ns/user", F_OK) == 0,
	    .filtered = probe_filtered_unshare(CLONE_NEWUSER),
	    .mapped =
		id_mapped("/proc/self/uid_map", euid) && id_mapped("/proc/self/gid_map", getegid()),
	    .host_id_mapped = euid != 0 || (id_mapped("/proc/self/uid_map", env->id_host) &&
					    id_mapped("/proc/self/gid_map", env->id_host)),
	    .setid_caps = euid != 0 || (has_cap(CAP_SETUID) && has_cap(CAP_SETGID)),
	    .chrooted = in_chroot(),
	    .max = probe_sysctl("/proc/sys/user/max_user_namespaces"),
	    .clone_sysctl = probe_sysctl("/proc/sys/kernel/unprivileged_userns_clone"),
	    .apparmor_sysctl =
		probe_sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
	};
	f->lsm = lsm_can_refuse(lsm, n);
}

static void blame(const struct probe_env *env, struct userns_facts *f, int sys,
		  enum userns_step step, const char *name, const char *lsm, struct probe_result *r)
{
	char object[PROBE_TEXT_MAX];
	enum cause c;

	f->sys = sys;
	f->step = step;
	c = userns_cause(f);
	switch (c) {
	case CAUSE_USERNS_LIMIT:
		(void)snprintf(object, sizeof(object), "%lld", (long long)f->max);
		break;
	case CAUSE_USERNS_APPARMOR:
		(void)snprintf(object, sizeof(object), "%s",
			       env->own_programs ? env->own_programs : "/usr/**/airlock{,-launch}");
		break;
	case CAUSE_USERNS_UNMAPPED:
		(void)snprintf(object, sizeof(object), "uid %u, gid %u", geteuid(), getegid());
		break;
	case CAUSE_IDMAP_RANGE:
		(void)snprintf(object, sizeof(object), "%u", env->id_host);
		break;
	case CAUSE_USERNS_LSM:
	case CAUSE_CAPS_WITHHELD:
		(void)snprintf(object, sizeof(object), "%s", lsm);
		break;
	default:
		(void)snprintf(object, sizeof(object), "%s: %s", name, strerror(sys));
		break;
	}
	if (c == CAUSE_SECCOMP_OUTER)
		(void)snprintf(object, sizeof(object), "unshare with CLONE_NEWUSER");
	probe_missing(r, c, sys, name, object);
}

static int write_file(pid_t pid, const char *name, const char *text)
{
	char path[64];
	_cleanup_fd_ int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

static int write_maps(const struct probe_env *env, pid_t pid, uid_t uid, gid_t gid)
{
	bool root = uid == 0;
	char text[64];
	int r;

	/* Not needed with CAP_SETGID, but harmless: the sandbox drops all groups and never wants them back.
	 */
	r = write_file(pid, "setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	(void)snprintf(text, sizeof(text), "%u %u 1", root ? env->id_inside : uid,
		       root ? env->id_host : uid);
	r = write_file(pid, "uid_map", text);
	if (r < 0)
		return r;
	(void)snprintf(text, sizeof(text), "%u %u 1", root ? env->id_inside : gid,
		       root ? env->id_host : gid);
	return write_file(pid, "gid_map", text);
}

/*
 * The writer stays in the outer namespace: a map to an id that is not one's own needs CAP_SETUID there.
 * Its exit status is the errno.
 */
static pid_t start_mapper(const struct probe_env *env, const int go[2])
{
	pid_t target = getpid(), pid;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char c;

	pid = fork();
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)close(go[1]); /* so that a caller that gives up is seen as end of file */
	if (read(go[0], &c, 1) != 1)
		_exit(0);
	_exit(-write_maps(env, target, uid, gid) & 0xff);
}

/* Becomes the mapped user, as a sandbox does. Capabilities in the namespace stay. */
static int become_mapped(const struct probe_env *env)
{
	if (prctl(PR_SET_KEEPCAPS, 1) < 0 ||
	    setresgid(env->id_inside, env->id_inside, env->id_inside) < 0 ||
	    setresuid(env->id_inside, env->id_inside, env->id_inside) < 0)
		return -errno;
	return 0;
}

int probe_enter(const struct probe_env *env, int more, struct probe_result *r)
{
	bool root = geteuid() == 0;
	struct userns_facts f;
	char lsm[128];
	int go[2], status = 0, err;
	pid_t mapper;

	gather(env, &f, lsm, sizeof(lsm));
	if (pipe2(go, O_CLOEXEC) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "pipe", NULL);
		return -r->sys;
	}
	mapper = start_mapper(env, go);
	(void)close(go[0]);
	err = mapper < 0 || unshare(CLONE_NEWUSER) < 0 ? errno : 0;
	if (err == 0 && write(go[1], "x", 1) != 1)
		err = errno;
	(void)close(go[1]);
	while (mapper > 0 && waitpid(mapper, &status, 0) < 0 && errno == EINTR)
		;
	if (err) {
		blame(env, &f, err, USERNS_CREATE, "create user namespace", lsm, r);
		return -err;
	}
	err = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	if (err) {
		blame(env, &f, err, USERNS_MAP, "write id map", lsm, r);
		return -err;
	}
	err = root ? -become_mapped(env) : 0;
	/* The first use of a capability: where a security module withholds them, this is what fails. */
	if (!err && unshare(CLONE_NEWUTS) < 0)
		err = errno;
	if (!err && sethostname("airlock", 7) < 0)
		err = errno;
	if (err) {
		f.filtered = probe_filtered_unshare(CLONE_NEWUTS);
		blame(env, &f, err, USERNS_USE, "use capabilities", lsm, r);
		return -err;
	}
	if (more && unshare(more) < 0) {
		err = errno;
		if (probe_filtered_unshare(more))
			probe_missing(r, CAUSE_SECCOMP_OUTER, err, "unshare",
				      "unshare of further namespaces");
		else
			probe_missing(r, CAUSE_UNKNOWN, err, "unshare", NULL);
		return -err;
	}
	return 0;
}

void probe_userns(const struct probe_env *env, struct probe_result *r)
{
	/* Asked from outside: a new namespace starts with a limit of its own. */
	int64_t max = probe_sysctl("/proc/sys/user/max_user_namespaces");

	if (probe_enter(env, 0, r) < 0) {
		/* The namespace itself is there; the map is the next row's matter. */
		if (r->cause == CAUSE_IDMAP_RANGE || r->cause == CAUSE_IDMAP_CAPS)
			*r = (struct probe_result){.layer = r->layer, .state = PROBE_IN_FORCE};
		return;
	}
	if (max >= 0)
		(void)snprintf(r->detail, sizeof(r->detail), "up to %lld", (long long)max);
}

void probe_idmap(const struct probe_env *env, struct probe_result *r)
{
	bool root = geteuid() == 0;
	uid_t uid = geteuid();

	if (probe_enter(env, 0, r) < 0)
		return;
	if (geteuid() != (root ? env->id_inside : uid)) {
		probe_missing(r, CAUSE_UNKNOWN, 0, "id map",
			      "the map was written but is not in force");
		return;
	}
	(void)snprintf(r->detail, sizeof(r->detail), "%u inside is %u outside", geteuid(),
		       root ? env->id_host : uid);
}

static const struct {
	enum layer layer;
	int flag;
	const char *option, *sysctl;
} namespaces[] = {
    {LAYER_MNTNS, CLONE_NEWNS, "mount namespaces", "user.max_mnt_namespaces"},
    {LAYER_PIDNS, CLONE_NEWPID, "CONFIG_PID_NS", "user.max_pid_namespaces"},
    {LAYER_IPCNS, CLONE_NEWIPC, "CONFIG_IPC_NS", "user.max_ipc_namespaces"},
    {LAYER_UTSNS, CLONE_NEWUTS, "CONFIG_UTS_NS", "user.max_uts_namespaces"},
    {LAYER_NETNS, CLONE_NEWNET, "CONFIG_NET_NS", "user.max_net_namespaces"},
    {LAYER_CGROUPNS, CLONE_NEWCGROUP, "CONFIG_CGROUPS", "user.max_cgroup_namespaces"},
};

static int loopback_up(void)
{
	_cleanup_fd_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	return s < 0 || ioctl(s, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

static int in_first_process(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(getpid() == 1 ? 0 : 1);
	if (pid < 0)
		return -errno;
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

void probe_namespace(const struct probe_env *env, struct probe_result *r)
{
	const char *step = "unshare";
	size_t i = 0;
	int err = 0;

	while (i < ARRAY_LEN(namespaces) - 1 && namespaces[i].layer != r->layer)
		i++;
	if (probe_enter(env, 0, r) < 0)
		return;
	if (unshare(namespaces[i].flag) < 0)
		err = errno;
	if (!err && r->layer == LAYER_NETNS) {
		step = "bring loopback up";
		err = -loopback_up();
	}
	if (!err && r->layer == LAYER_PIDNS) {
		step = "start process 1";
		err = -in_first_process();
	}
	if (!err)
		return;
	if (probe_filtered_unshare(namespaces[i].flag))
		probe_missing(r, CAUSE_SECCOMP_OUTER, err, step, step);
	else if (err == EINVAL)
		probe_missing(r, CAUSE_NS_KERNEL, err, step, namespaces[i].option);
	else if (err == ENOSPC)
		probe_missing(r, CAUSE_NS_LIMIT, err, step, namespaces[i].sysctl);
	else
		probe_missing(r, CAUSE_UNKNOWN, err, step, NULL);
}
