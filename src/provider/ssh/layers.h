/*
 * layers.h: the layers of a sandbox on another machine, each tried there by that machine's own programs.
 *
 * For the doctor, and for a start that failed: both say the same of a layer that is missing.
 */
#ifndef AIRLOCK_PROVIDER_SSH_LAYERS_H
#define AIRLOCK_PROVIDER_SSH_LAYERS_H

#include <stdbool.h>

#include "provider/ssh/look.h"

struct ssh_layer {
	const char *name, *word, *remedy;
	unsigned without; /* WITHOUT_* that does without it; 0 */
	bool needed;	  /* no sandbox without it, unless `without` */
};

#define SSH_LAYERS 10
extern const struct ssh_layer ssh_layers[SSH_LAYERS];

/* Says "userns yes" or "userns no". */
#define SSH_USERNS_SCRIPT \
	"if unshare -Ur true >/dev/null 2>&1; then s userns yes; else s userns no; fi; "
/* The others, as the script of a look (look.h). */
#define SSH_LAYERS_SCRIPT                                                                                               \
	"u() { if unshare -Ur $2 sh -c \"$3\" >/dev/null 2>&1; then s $1 yes; else s $1 no; fi; }; "                    \
	"o=lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w; "                                                            \
	"u mountns -m \"mount -t tmpfs none /mnt\"; "                                                                   \
	"u overlay -m \"mount -t tmpfs none /mnt; cd /mnt; mkdir l u w m; mount -t overlay -o $o none m\"; "            \
	"u pidns \"-p -f --mount-proc\" true; u netns -n true; u ipcns -i true; u utsns -u true; "                      \
	"k=$(uname -r); a=${k%%.*}; b=${k#*.}; b=${b%%.*}; b=${b%%-*}; b=${b%%+*}; "                                    \
	"if grep -qw landlock /sys/kernel/security/lsm && { test $a -gt 6 || { test $a -eq 6 && test $b -ge 12; }; }; " \
	"then s landlock yes; else s landlock no; fi 2>/dev/null; "                                                     \
	"if test -r /proc/sys/kernel/seccomp/actions_avail; then s seccomp yes; else s seccomp no; fi; "                \
	"c=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup); "                                                       \
	"if test -w $c/cgroup.procs && test -w $c/cgroup.subtree_control; then s cgroup yes; else s cgroup no; fi; "

/* Whether that machine has the layer. */
bool ssh_layer_there(const struct ssh_layer *l, const struct ssh_said *s);
/* Appends which needed ones are missing, and the remedy of each; nothing if it cannot be told. */
void ssh_layers_missing(const struct ssh_target *t, unsigned without, const volatile int *cancel,
			struct buf *out);

#endif
