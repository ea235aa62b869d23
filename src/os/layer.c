#include "os/layer.h"

#include <string.h>

static const struct layer_info layers[LAYER_COUNT] = {
    [LAYER_KERNEL] = {"kernel", "kernel calls", "race-free file access, process handles", NULL,
		      NEED_ALWAYS},
    [LAYER_USERNS] = {"userns", "user namespace", "every other namespace, without root", NULL,
		      NEED_ALWAYS},
    [LAYER_IDMAP] = {"idmap", "user id map", "no process inside is a host user's", NULL,
		     NEED_ALWAYS},
    [LAYER_MNTNS] = {"mountns", "mount namespace", "a file tree of its own", NULL, NEED_ALWAYS},
    [LAYER_PIDNS] = {"pidns", "pid namespace", "host processes unseen, whole tree ended", NULL,
		     NEED_ALWAYS},
    [LAYER_IPCNS] = {"ipcns", "ipc namespace", "no shared memory with the host", NULL, NEED_ALWAYS},
    [LAYER_UTSNS] = {"utsns", "uts namespace", "a host name of its own", NULL, NEED_ALWAYS},
    [LAYER_NETNS] = {"netns", "network namespace", "no network but loopback", NULL, NEED_ALWAYS},
    [LAYER_CGROUPNS] = {"cgroupns", "cgroup namespace", "host cgroup names unseen", NULL,
			NEED_FEATURE},
    [LAYER_PROC] = {"proc", "fresh /proc", "a process view of its own", NULL, NEED_ALWAYS},
    [LAYER_TMPFS] = {"tmpfs", "tmpfs", "private /dev and root", NULL, NEED_ALWAYS},
    [LAYER_DEVPTS] = {"devpts", "devpts instance", "terminals (--tty, shell)", NULL, NEED_FEATURE},
    [LAYER_ROBIND] = {"robind", "read-only system image", "host programs, unwritable", NULL,
		      NEED_ALWAYS},
    [LAYER_PIVOT] = {"pivot", "pivot_root", "the host's tree cannot be reached", NULL, NEED_ALWAYS},
    [LAYER_STATE] = {"state", "state directory", "room for leases, logs, results", NULL,
		     NEED_ALWAYS},
    [LAYER_OVERLAY] = {"overlay", "overlay workspace", "leases without a copy", "overlay",
		       NEED_UNNAMED},
    [LAYER_WHITEOUT] = {"whiteout", "overlay whiteouts", "deletions inside", "overlay",
			NEED_UNNAMED},
    [LAYER_NNP] = {"nnp", "no new privileges", "set-uid programs gain nothing", NULL, NEED_ALWAYS},
    [LAYER_SECCOMP] = {"seccomp", "seccomp filter", "fewer kernel calls within reach", "seccomp",
		       NEED_UNNAMED},
    [LAYER_LANDLOCK] = {"landlock", "Landlock", "helpers confined to their directories", "landlock",
			NEED_UNNAMED},
    [LAYER_RLIMITS] = {"rlimits", "resource limits", "open files, processes", NULL, NEED_FEATURE},
    [LAYER_CGROUP] = {"cgroup", "cgroup limits", "--memory, --cpus", NULL, NEED_FEATURE},
    [LAYER_HELPERS] = {"helpers", "helper programs", "the doors and the launcher", NULL,
		       NEED_ALWAYS},
    [LAYER_GUEST] = {"guest", "guest program", "process 1 of the sandbox", NULL, NEED_ALWAYS},
    [LAYER_GIT] = {"git", "git", "selection by .gitignore, usable repository inside", NULL,
		   NEED_FEATURE},
    [LAYER_SSH] = {"ssh", "ssh client", "the ssh provider", NULL, NEED_FEATURE},
    [LAYER_NAMES] = {"names", "name resolution", "host names with --net host", NULL, NEED_FEATURE},
    [LAYER_CERTS] = {"certs", "CA certificates", "HTTPS from inside", NULL, NEED_FEATURE},
};

/* What an enclosing container has to grant; the same words wherever a container is in the way. */
#define CONTAINER_REMEDY                                                                                   \
	"start the enclosing container with: docker run --security-opt seccomp=unconfined --security-opt " \
	"apparmor=unconfined --security-opt systempaths=unconfined ... (Kubernetes: seccompProfile type "  \
	"Unconfined, procMount Unmasked, hostUsers false)"

static const struct cause_info causes[CAUSE_COUNT] = {
    [CAUSE_NONE] = {"none", "", ""},
    [CAUSE_NOT_TRIED] = {"not_tried", "not tried: --quick writes nothing and starts no program",
			 "airlock doctor"},
    [CAUSE_NEEDS_USERNS] = {"needs_userns", "cannot be tried without a user namespace",
			    "repair the user namespace first"},
    [CAUSE_PROBE_TIMEOUT] = {"probe_timeout", "the trial did not end within {}",
			     "look for a hung mount or device: dmesg | tail"},
    [CAUSE_PROBE_DIED] =
	{"probe_died", "the trial was killed ({}), as a filter that kills on a forbidden call does",
	 CONTAINER_REMEDY},
    [CAUSE_UNKNOWN] = {"unknown", "the kernel refused: {}", "dmesg | tail, or journalctl -k -n 50"},

    [CAUSE_USERNS_KERNEL] = {"userns_kernel",
			     "this kernel is built without user namespaces (CONFIG_USER_NS)",
			     "boot a kernel with CONFIG_USER_NS=y, such as the distribution's own"},
    [CAUSE_USERNS_MAX_ZERO] =
	{"userns_max_zero", "user.max_user_namespaces is 0: user namespaces are switched off",
	 "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/90-airlock.conf && "
	 "sudo sysctl --system"},
    [CAUSE_USERNS_LIMIT] =
	{"userns_limit",
	 "no user namespace is left in this or an enclosing namespace (limit here: {}); a "
	 "sandbox that forbids nesting answers so too",
	 "run outside that sandbox, or raise the outer limit: sudo sysctl -w "
	 "user.max_user_namespaces=15000"},
    [CAUSE_USERNS_CLONE_SYSCTL] =
	{"userns_clone_sysctl",
	 "kernel.unprivileged_userns_clone is 0: only root may create user namespaces",
	 "echo kernel.unprivileged_userns_clone=1 | sudo tee "
	 "/etc/sysctl.d/90-airlock.conf && sudo sysctl --system"},
    [CAUSE_USERNS_APPARMOR] =
	{"userns_apparmor",
	 "kernel.apparmor_restrict_unprivileged_userns is 1: the namespace is created, but "
	 "its capabilities are withheld",
	 "printf 'abi <abi/4.0>,\\nprofile airlock {} flags=(unconfined) "
	 "{ userns, }\\n' | sudo tee /etc/apparmor.d/airlock && sudo apparmor_parser -r "
	 "/etc/apparmor.d/airlock"},
    [CAUSE_USERNS_CHROOT] =
	{"userns_chroot",
	 "this process lives in a chroot, where the kernel forbids user namespaces",
	 "enter the tree with pivot_root instead, for example: sudo systemd-nspawn -D DIR"},
    [CAUSE_USERNS_UNMAPPED] =
	{"userns_unmapped",
	 "the user or group that runs this ({}) does not exist in its own user namespace",
	 "start as a user that the enclosing container maps (see /proc/self/uid_map)"},
    [CAUSE_USERNS_LSM] =
	{"userns_lsm", "a security module forbids user namespaces ({})",
	 "allow user_namespace create (SELinux) or userns (AppArmor) for airlock-launch; the "
	 "refusal is in: journalctl -k | grep -i denied"},
    [CAUSE_USERNS_REFUSED] =
	{"userns_refused",
	 "the kernel forbids user namespaces without giving a reason (a chroot into a mount "
	 "point, or a security module)",
	 "run outside the chroot; look for a refusal in: journalctl -k | grep -i denied"},
    [CAUSE_CAPS_WITHHELD] =
	{"caps_withheld",
	 "the user namespace is created, but a security module withholds its capabilities ({})",
	 "allow userns for airlock-launch in the module's policy; the refusal is in: journalctl "
	 "-k | grep -i denied"},
    [CAUSE_SECCOMP_OUTER] =
	{"seccomp_outer",
	 "a system call filter that is already on this process, as container engines set it, "
	 "forbids {}",
	 CONTAINER_REMEDY},
    [CAUSE_IDMAP_RANGE] =
	{"idmap_range",
	 "id {} does not exist in the user namespace that root has here, so nobody's id cannot be "
	 "used for the sandbox",
	 "run airlock as an ordinary user of this container"},
    [CAUSE_IDMAP_CAPS] =
	{"idmap_caps", "root lacks CAP_SETUID or CAP_SETGID here, so it cannot write an id map",
	 "run airlock as an ordinary user, or give the container both capabilities: docker run "
	 "--cap-add SETUID --cap-add SETGID ..."},

    [CAUSE_NS_KERNEL] = {"ns_kernel", "this kernel is built without it ({})",
			 "boot a kernel with that option, such as the distribution's own"},
    [CAUSE_NS_LIMIT] = {"ns_limit", "none is left: {} is too low here or in an enclosing namespace",
			"sudo sysctl -w {}=15000"},

    [CAUSE_PROC_ABSENT] = {"proc_absent", "/proc is not mounted here",
			   "sudo mount -t proc proc /proc"},
    [CAUSE_PROC_MASKED] =
	{"proc_masked",
	 "the enclosing container covers parts of /proc ({}), and the kernel allows a fresh one only "
	 "where all of it is visible",
	 "docker run --security-opt systempaths=unconfined ... (podman: --security-opt "
	 "unmask=ALL; Kubernetes: procMount: Unmasked with hostUsers: false)"},
    [CAUSE_PROC_HIDDEN] = {"proc_hidden", "no complete and writable /proc is visible here",
			   "sudo mount -t proc proc /proc"},
    [CAUSE_MOUNT_REFUSED] =
	{"mount_refused", "a security module forbids the mount ({})",
	 "docker run --security-opt apparmor=unconfined ...; the refusal is in: journalctl -k | "
	 "grep -i denied"},
    [CAUSE_FS_KERNEL] = {"fs_kernel", "this kernel has no file system {}", "sudo modprobe {}"},
    [CAUSE_ROOT_IS_INITRAMFS] =
	{"root_is_initramfs", "the root file system is the initramfs, which cannot be pivoted away",
	 "switch_root to a real root file system (a tmpfs is enough) first"},
    [CAUSE_OVERLAY_OLD] = {"overlay_old",
			   "this kernel's overlay cannot be mounted in a user namespace ({})",
			   "use Linux 5.11 or newer, or: airlock run --without overlay"},
    [CAUSE_OVERLAY_FS] =
	{"overlay_fs", "the state directory's file system ({}) cannot carry an overlay",
	 "set XDG_STATE_HOME to a directory on ext4, xfs, btrfs or tmpfs, or: airlock run "
	 "--without overlay"},
    [CAUSE_OVERLAY_XATTR] =
	{"overlay_xattr",
	 "the state directory's file system ({}) keeps no user extended attributes, so replaced "
	 "directories would be lost",
	 "set XDG_STATE_HOME to a directory on ext4, xfs or btrfs, or: airlock run --without "
	 "overlay"},
    [CAUSE_OVERLAY_COPYUP] =
	{"overlay_copyup", "overlay mounts, but the first write to a file fails ({})",
	 "set XDG_STATE_HOME to a directory on ext4, xfs or btrfs, or: airlock run --without "
	 "overlay"},
    [CAUSE_WHITEOUT] =
	{"whiteout", "a deletion leaves no mark in the overlay ({})",
	 "use Linux 5.8 or newer and a local file system, or: airlock run --without overlay"},

    [CAUSE_SECCOMP_KERNEL] =
	{"seccomp_kernel", "this kernel cannot filter system calls (CONFIG_SECCOMP_FILTER)",
	 "boot a kernel with CONFIG_SECCOMP_FILTER=y, or: airlock run --without seccomp"},
    [CAUSE_LANDLOCK_KERNEL] = {"landlock_kernel",
			       "this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, Linux 5.13)",
			       "use a newer kernel, or: airlock run --without landlock"},
    [CAUSE_LANDLOCK_BOOT] =
	{"landlock_boot", "Landlock is built in but was not enabled at boot",
	 "add landlock to lsm= on the kernel command line (now: {}), or: airlock run --without "
	 "landlock"},
    [CAUSE_LANDLOCK_OLD] = {"landlock_old", "only level {} of Landlock",
			    "use Linux 6.2 or newer for level 3"},
    [CAUSE_RLIMIT_LOW] = {"rlimit_low", "the hard limit is low: {}",
			  "raise it in /etc/security/limits.conf, or LimitNOFILE= of the service"},
    [CAUSE_CGROUP_NONE] = {"cgroup_none", "no cgroup file system is mounted here",
			   "sudo mount -t cgroup2 none /sys/fs/cgroup"},
    [CAUSE_CGROUP_NOT_DELEGATED] = {"cgroup_not_delegated",
				    "no cgroup is delegated to this user ({} is not writable)",
				    "systemd-run --user --scope -p Delegate=yes airlock run ..."},
    [CAUSE_CGROUP_ROOT_ONLY] =
	{"cgroup_root_only",
	 "the controllers are in version 1 hierarchies, where only root may make a group ({})",
	 "sudo airlock run ..., or boot with systemd.unified_cgroup_hierarchy=1"},
    [CAUSE_CGROUP_CONTROLLERS] = {"cgroup_controllers",
				  "a group can be made, but controllers are missing: {}",
				  "systemd-run --user --scope -p Delegate=yes airlock run ..."},

    [CAUSE_KERNEL_OLD] = {"kernel_old", "this kernel lacks: {}", "use Linux 5.12 or newer"},
    [CAUSE_STATE_UNUSABLE] = {"state_unusable", "the state directory cannot be used: {}",
			      "set XDG_STATE_HOME to a directory that you can write"},
    [CAUSE_STATE_FULL] = {"state_full", "too little room at the state directory: {}",
			  "free space there, or set XDG_STATE_HOME to a larger file system"},
    [CAUSE_STATE_NOEXEC] =
	{"state_noexec",
	 "the state directory lies on a file system mounted noexec: programs in the sandbox's home "
	 "and /tmp will not run",
	 "set XDG_STATE_HOME to a file system mounted exec"},
    [CAUSE_STATE_NOSYMFOLLOW] =
	{"state_nosymfollow",
	 "the state directory lies on a file system mounted nosymfollow: links in the sandbox's home "
	 "and /tmp lead nowhere, nor do those of an imported image",
	 "set XDG_STATE_HOME to a file system mounted without it"},
    [CAUSE_STATE_LOW] = {"state_low", "room at the state directory is getting low: {}",
			 "free space there, or remove old runs: airlock rm"},
    [CAUSE_HELPER_MISSING] = {"helper_missing", "missing beside the airlock program: {}",
			      "install Airlock again"},
    [CAUSE_HELPER_VERSION] = {"helper_version", "another version than this program: {}",
			      "install Airlock again"},
    [CAUSE_HELPER_UNCONFINED] = {"helper_unconfined", "built with its confinement switched off: {}",
				 "install a release build of Airlock"},
    [CAUSE_GUEST_BROKEN] = {"guest_broken", "airlock-guest does not start: {}",
			    "install Airlock again"},
    [CAUSE_GUEST_DYNAMIC] = {"guest_dynamic", "airlock-guest is not a static program",
			     "install Airlock again"},
    [CAUSE_PROGRAM_ABSENT] = {"program_absent", "{} is not on PATH", "sudo apt install {}"},
    [CAUSE_PROGRAM_BROKEN] = {"program_broken", "is on PATH but does not work: {}",
			      "reinstall the package"},
    [CAUSE_PROGRAM_OLD] = {"program_old", "too old: {}", "use git 2.31 or newer"},
    [CAUSE_RESOLV_ABSENT] =
	{"resolv_absent", "/etc/resolv.conf is missing or a link to nowhere ({})",
	 "start the host's resolver (sudo systemctl start systemd-resolved), or write "
	 "/etc/resolv.conf"},
    [CAUSE_RESOLV_EMPTY] = {"resolv_empty", "/etc/resolv.conf names no server",
			    "echo 'nameserver ADDRESS' | sudo tee -a /etc/resolv.conf"},
    [CAUSE_CERTS_ABSENT] = {"certs_absent", "no bundle of CA certificates in the usual places",
			    "sudo apt install ca-certificates"},
};

const struct layer_info *layer_info(enum layer l)
{
	return &layers[l < LAYER_COUNT ? l : LAYER_KERNEL];
}

const struct cause_info *cause_info(enum cause c)
{
	return &causes[c < CAUSE_COUNT ? c : CAUSE_UNKNOWN];
}

int cause_expand(struct buf *b, const char *text, const char *object)
{
	const char *at;

	for (; (at = strstr(text, "{}")); text = at + 2) {
		(void)buf_put(b, text, (size_t)(at - text));
		(void)buf_puts(b, object ? object : "");
	}
	return buf_puts(b, text);
}
