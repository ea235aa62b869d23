/*
 * probe.h: tries, for real, what a sandbox is made of.
 *
 * Each trial runs in a forked child in namespaces of its own and under a deadline; that child can be read by every
 * process of the same user, so who has read a credential uses probe_apart. The caller's process is never changed, and nothing is left behind: no process, mount, cgroup or file. A trial answers with a
 * state and, when something is missing, with the cause that was proved, never with a guess from
 * version numbers.
 */
#ifndef AIRLOCK_OS_PROBE_H
#define AIRLOCK_OS_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/layer.h"

#define PROBE_LAYER_TIMEOUT_MS 5000 /* one trial; a healthy one takes a few milliseconds */
#define PROBE_TEXT_MAX 256	    /* bytes of object or detail */

enum probe_state {
	PROBE_IN_FORCE,
	PROBE_LIMITED, /* works, with the restriction that the cause names */
	PROBE_MISSING,
	PROBE_SKIPPED, /* not tried, the cause says why */
};

/* Crosses a pipe from the trial's child: no pointers. */
struct probe_result {
	enum layer layer;
	enum probe_state state;
	enum cause cause;
	int sys;		     /* errno of the failing step, or 0 */
	char step[32];		     /* the failing step ("unshare", "write uid_map") */
	char object[PROBE_TEXT_MAX]; /* what {} in the cause's texts stands for */
	char detail[PROBE_TEXT_MAX]; /* figures worth showing ("ABI 7", "12 GiB free") */
};

struct probe_env {
	const char *state_dir; /* absolute; may not exist yet */
	const char *version;   /* what helpers must say */
	uid_t id_inside;       /* started by host root: this uid and gid inside ... */
	uid_t id_host;	       /* ... is this one on the host */
	bool quick;	       /* write nothing to disk, start no other program */
	int timeout_ms;	       /* of one trial; 0: PROBE_LAYER_TIMEOUT_MS */
	const char
	    *own_programs; /* AppArmor pattern of the programs that make namespaces; or NULL */
	const char *programs[2]; /* git, ssh: names or paths to run instead; NULL: from PATH */
	bool userns_missing;	 /* set by probe_all after LAYER_USERNS: dependents are skipped */
};

/* One trial. Always fills r. */
void probe_layer(const struct probe_env *env, enum layer l, struct probe_result *r);
/* All, in the order of enum layer. */
void probe_all(struct probe_env *env, struct probe_result r[LAYER_COUNT]);
/*
 * One trial in a program of its own (airlock-try), for a caller that may hold credentials. 0, or negative errno when
 * that gave no answer; what env says of programs, version and quick does not count.
 */
int probe_apart(const struct probe_env *env, enum layer l, struct probe_result *r);
/* That program: its exit status. */
int probe_serve(int argc, char **argv);
/* True if `airlock run` without --without works as far as this result goes. */
bool probe_allows_run(const struct probe_result *r);

/* ---- for the trials themselves (probe_*.c) ---- */

typedef void (*probe_fn)(const struct probe_env *env, struct probe_result *r);

/* Runs fn in a child and takes over its result. A child that hangs or dies becomes a result as well. */
void probe_in_child(const struct probe_env *env, probe_fn fn, struct probe_result *r);
/*
 * Runs "program option" (found by PATH) and gives the first line of its output, or of its errors. Exit status,
 * 128 + signal, or a negative errno (-ENOENT: there is no such program).
 */
int probe_capture(const struct probe_env *env, const char *program, const char *option, char *out,
		  size_t n);
/* Fill r. object NULL: step and the text of sys. */
void probe_missing(struct probe_result *r, enum cause c, int sys, const char *step,
		   const char *object);
void probe_limited(struct probe_result *r, enum cause c, const char *object);
/* True if this kernel calls itself major.minor or newer. */
bool probe_kernel_is(unsigned major, unsigned minor);
/* Number in a file of /proc/sys, -1 if there is none. */
int64_t probe_sysctl(const char *path);

/*
 * True if a filter answers for the kernel: a call that the kernel is sure to refuse with `expect` (a bad
 * address, an impossible flag) was refused with something else. That tells a container's filter from
 * the kernel's own refusal, which has the same errno.
 */
bool probe_filtered_unshare(int flag);
bool probe_filtered_mount(void);

/* Facts from which the cause of a refused user namespace is told. */
enum userns_step { USERNS_CREATE, USERNS_MAP, USERNS_USE };
struct userns_facts {
	enum userns_step step;
	int sys;
	bool privileged;	 /* CAP_SYS_ADMIN */
	bool proc;		 /* /proc is there at all */
	bool kernel;		 /* /proc/self/ns/user exists */
	bool filtered;		 /* probe_filtered_unshare */
	bool mapped;		 /* own ids exist in own namespace */
	bool host_id_mapped;	 /* id_host exists in own namespace */
	bool setid_caps;	 /* CAP_SETUID and CAP_SETGID */
	bool chrooted;		 /* proved, not suspected */
	bool lsm;		 /* a module that can refuse is active */
	int64_t max;		 /* user.max_user_namespaces, -1 unknown */
	int64_t clone_sysctl;	 /* kernel.unprivileged_userns_clone */
	int64_t apparmor_sysctl; /* kernel.apparmor_restrict_unprivileged_userns */
};
enum cause userns_cause(const struct userns_facts *f);

/*
 * In a trial's child: enters a user namespace with the id map of a sandbox, then unshares `more`. 0, or the
 * negative errno with r filled.
 */
int probe_enter(const struct probe_env *env, int more, struct probe_result *r);
/* As probe_enter with a mount namespace, and an empty tmpfs as current directory. */
int probe_enter_mounts(const struct probe_env *env, int more, struct probe_result *r);

void probe_userns(const struct probe_env *env, struct probe_result *r);
void probe_idmap(const struct probe_env *env, struct probe_result *r);
void probe_namespace(const struct probe_env *env, struct probe_result *r);
void probe_proc(const struct probe_env *env, struct probe_result *r);
void probe_tmpfs(const struct probe_env *env, struct probe_result *r);
void probe_devpts(const struct probe_env *env, struct probe_result *r);
void probe_robind(const struct probe_env *env, struct probe_result *r);
void probe_pivot(const struct probe_env *env, struct probe_result *r);
void probe_overlay(const struct probe_env *env, struct probe_result *r);
void probe_state_dir(const struct probe_env *env, struct probe_result *r);
void probe_nnp(const struct probe_env *env, struct probe_result *r);
void probe_seccomp(const struct probe_env *env, struct probe_result *r);
void probe_landlock(const struct probe_env *env, struct probe_result *r);
void probe_rlimits(const struct probe_env *env, struct probe_result *r);
void probe_cgroup(const struct probe_env *env, struct probe_result *r);
void probe_kernel(const struct probe_env *env, struct probe_result *r);
void probe_helpers(const struct probe_env *env, struct probe_result *r);
void probe_guest(const struct probe_env *env, struct probe_result *r);
void probe_git(const struct probe_env *env, struct probe_result *r);
void probe_ssh(const struct probe_env *env, struct probe_result *r);
void probe_names(const struct probe_env *env, struct probe_result *r);
void probe_certs(const struct probe_env *env, struct probe_result *r);

#endif
