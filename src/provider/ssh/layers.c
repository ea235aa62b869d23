#include "provider/ssh/layers.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "provider/provider.h"

#define LOOK_MS 60000

const struct ssh_layer ssh_layers[SSH_LAYERS] = {
    {"user namespace", "userns",
     "allow unprivileged user namespaces there (sysctl kernel.unprivileged_userns_clone, AppArmor), and install util-linux",
     0, true},
    {"mount namespace", "mountns", "see user namespace", 0, true},
    {"overlay", "overlay", "a kernel from 5.11 on mounts it in a user namespace", WITHOUT_OVERLAY,
     true},
    {"pid namespace", "pidns", "see user namespace; in a container, its /proc must be whole", 0,
     true},
    {"network namespace", "netns", "see user namespace", 0, true},
    {"ipc namespace", "ipcns", "see user namespace", 0, true},
    {"uts namespace", "utsns", "see user namespace", 0, true},
    {"landlock", "landlock",
     "a kernel from 6.12 on (Landlock ABI 6), with landlock among its lsm=; a run goes on without, and says so",
     WITHOUT_LANDLOCK, false},
    {"seccomp", "seccomp", "a kernel with CONFIG_SECCOMP_FILTER", WITHOUT_SECCOMP, true},
    {"cgroup limits", "cgroup",
     "let the account's session have a delegated cgroup v2 (systemd: Delegate=yes); limits alone need it",
     WITHOUT_CGROUP, false},
};

bool ssh_layer_there(const struct ssh_layer *l, const struct ssh_said *s)
{
	_cleanup_free_ char *v = ssh_said_get(s, l->word);

	return str_eq(v, "yes");
}

void ssh_layers_missing(const struct ssh_target *t, unsigned without, const volatile int *cancel,
			struct buf *out)
{
	const struct ssh_look look = {.target = t,
				      .script = SSH_USERNS_SCRIPT SSH_LAYERS_SCRIPT ":",
				      .input = "",
				      .timeout_ms = LOOK_MS,
				      .cancel = cancel};
	_cleanup_said_ struct ssh_said said = {0};
	struct err none = ERR_INIT;

	if (ssh_look(&look, &said, &none) < 0)
		return;
	for (size_t i = 0; i < SSH_LAYERS; i++) {
		const struct ssh_layer *l = &ssh_layers[i];

		if (!l->needed || (l->without & without) || ssh_layer_there(l, &said))
			continue;
		(void)buf_putf(out, " Missing there: %s. Remedy: %s.", l->name, l->remedy);
		/* Without it no other one can be tried. */
		if (i == 0)
			return;
	}
}
