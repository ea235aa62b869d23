/*
 * layer.h: what a sandbox is made of, why a part can be missing, and the way out.
 *
 * One table of layers (name, whether `airlock run` insists on it, the word that does without it) and one
 * of causes (sentence, remedy). `airlock doctor` and the messages of the native provider take their texts
 * from here, so that a failed start and a diagnosis never say different things. Pure data, no system calls.
 */
#ifndef AIRLOCK_OS_LAYER_H
#define AIRLOCK_OS_LAYER_H

#include <stdbool.h>

#include "base/buf.h"

enum layer {
	LAYER_KERNEL,
	LAYER_USERNS,
	LAYER_IDMAP,
	LAYER_MNTNS,
	LAYER_PIDNS,
	LAYER_IPCNS,
	LAYER_UTSNS,
	LAYER_NETNS,
	LAYER_CGROUPNS,
	LAYER_PROC,
	LAYER_TMPFS,
	LAYER_DEVPTS,
	LAYER_ROBIND,
	LAYER_PIVOT,
	LAYER_STATE,
	LAYER_OVERLAY,
	LAYER_WHITEOUT,
	LAYER_NNP,
	LAYER_SECCOMP,
	LAYER_LANDLOCK,
	LAYER_RLIMITS,
	LAYER_CGROUP,
	LAYER_HELPERS,
	LAYER_GUEST,
	LAYER_GIT,
	LAYER_SSH,
	LAYER_NAMES,
	LAYER_CERTS,
	LAYER_COUNT
};

enum layer_need {
	NEED_ALWAYS,  /* no run without it */
	NEED_UNNAMED, /* no run without it unless --without WORD */
	NEED_FEATURE, /* only what `gives` names is lost */
};

struct layer_info {
	const char *id;	     /* stable word for JSON */
	const char *name;    /* for people */
	const char *gives;   /* what it protects or enables */
	const char *without; /* word of --without, or NULL */
	enum layer_need need;
};

const struct layer_info *layer_info(enum layer l);

enum cause {
	CAUSE_NONE,
	CAUSE_NOT_TRIED,     /* quick mode */
	CAUSE_NEEDS_USERNS,  /* depends on a layer that is missing */
	CAUSE_PROBE_TIMEOUT, /* the trial itself hung */
	CAUSE_PROBE_DIED,
	CAUSE_UNKNOWN, /* errno only */
	/* user namespaces */
	CAUSE_USERNS_KERNEL,
	CAUSE_USERNS_MAX_ZERO,
	CAUSE_USERNS_LIMIT,
	CAUSE_USERNS_CLONE_SYSCTL,
	CAUSE_USERNS_APPARMOR,
	CAUSE_USERNS_CHROOT,
	CAUSE_USERNS_UNMAPPED,
	CAUSE_USERNS_LSM,
	CAUSE_USERNS_REFUSED,
	CAUSE_CAPS_WITHHELD,
	CAUSE_SECCOMP_OUTER, /* a filter that is already on this process */
	CAUSE_IDMAP_RANGE,
	CAUSE_IDMAP_CAPS,
	/* other namespaces */
	CAUSE_NS_KERNEL,
	CAUSE_NS_LIMIT,
	/* mounts */
	CAUSE_PROC_ABSENT,
	CAUSE_PROC_MASKED,
	CAUSE_PROC_HIDDEN,
	CAUSE_MOUNT_REFUSED,
	CAUSE_FS_KERNEL,
	CAUSE_ROOT_IS_INITRAMFS,
	CAUSE_OVERLAY_OLD,
	CAUSE_OVERLAY_FS,
	CAUSE_OVERLAY_XATTR,
	CAUSE_OVERLAY_COPYUP,
	CAUSE_WHITEOUT,
	/* confinement */
	CAUSE_SECCOMP_KERNEL,
	CAUSE_LANDLOCK_KERNEL,
	CAUSE_LANDLOCK_BOOT,
	CAUSE_LANDLOCK_OLD,
	CAUSE_RLIMIT_LOW,
	CAUSE_CGROUP_NONE,
	CAUSE_CGROUP_NOT_DELEGATED,
	CAUSE_CGROUP_ROOT_ONLY,
	CAUSE_CGROUP_CONTROLLERS,
	/* kernel, storage, programs */
	CAUSE_KERNEL_OLD,
	CAUSE_STATE_UNUSABLE,
	CAUSE_STATE_FULL,
	CAUSE_STATE_NOEXEC,
	CAUSE_STATE_NOSYMFOLLOW,
	CAUSE_STATE_LOW,
	CAUSE_HELPER_MISSING,
	CAUSE_HELPER_VERSION,
	CAUSE_HELPER_UNCONFINED,
	CAUSE_GUEST_BROKEN,
	CAUSE_GUEST_DYNAMIC,
	CAUSE_PROGRAM_ABSENT,
	CAUSE_PROGRAM_BROKEN,
	CAUSE_PROGRAM_OLD,
	CAUSE_RESOLV_ABSENT,
	CAUSE_RESOLV_EMPTY,
	CAUSE_CERTS_ABSENT,
	CAUSE_COUNT
};

struct cause_info {
	const char *id;	 /* stable word for JSON */
	const char *why; /* one sentence; {} stands for the object of the result */
	const char
	    *remedy; /* a command where there is one; {} as above; "" if there is nothing to do */
};

const struct cause_info *cause_info(enum cause c);
/* Appends text with every {} replaced by object ("" if NULL). 0 or the failure of b. */
int cause_expand(struct buf *b, const char *text, const char *object);

#endif
