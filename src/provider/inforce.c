#include "provider/inforce.h"

#include "base/cleanup.h"
#include "provider/native/fill.h"
#include "wire/guest.h"

static void say(struct sandbox *sb, const char *layer, const char *state, const char *detail)
{
	if (sb->isolation_len < ARRAY_LEN(sb->isolation))
		sb->isolation[sb->isolation_len++] = (struct isolation){layer, state, detail};
}

static void say_limit(struct sandbox *sb, const struct plan *p, const char *layer, bool asked,
		      bool in_force)
{
	if (!asked)
		return;
	if (in_force)
		say(sb, layer, "in force", "");
	else
		say(sb, layer, p->without & WITHOUT_CGROUP ? "switched off" : "not available",
		    "--without cgroup");
}

void inforce_fill(struct sandbox *sb, const struct plan *p, uint32_t landlock, uint32_t limits)
{
	static const char on[] = "in force", off[] = "switched off";

	sb->isolation_len = 0;
	say(sb, "user namespace", on,
	    p->uid_host == SANDBOX_UID ? "one id, nobody's on the host" : "one id, yours");
	say(sb, "mount namespace", on,
	    p->image ? "private root, an imported system image, read-only"
		     : "private root, system image read-only");
	say(sb, "pid namespace", on, "");
	say(sb, "ipc namespace", on, "");
	say(sb, "uts namespace", on, "");
	say(sb, "cgroup namespace", on, "");
	if (p->net == NET_NONE)
		say(sb, "network namespace", on, "loopback only");
	else
		say(sb, "network namespace", off, "the host's network, all of it");
	if (p->without & WITHOUT_OVERLAY)
		say(sb, "overlay workspace", off, "a private copy instead");
	else
		say(sb, "overlay workspace", on, "");
	say(sb, "no new privileges", on, "");
	say(sb, "capabilities", on, "all dropped");
	if (p->without & WITHOUT_SECCOMP)
		say(sb, "seccomp", off, "--without seccomp");
	else
		say(sb, "seccomp", on, "allow-list");
	if (p->without & WITHOUT_LANDLOCK)
		say(sb, "landlock", off, "--without landlock");
	else if (landlock >= 6)
		say(sb, "landlock", on, "abstract sockets and signals stay inside");
	else
		say(sb, "landlock", "not available",
		    p->net == NET_NONE
			? "kernel before 6.12; the namespaces cover it"
			: "kernel before 6.12: abstract sockets of the host are in reach");
	say(sb, "process limit", on, "");
	say_limit(sb, p, "cgroup memory", p->memory_bytes, limits & GR_MEMORY);
	say_limit(sb, p, "cgroup cpu", p->cpu_milli, limits & GR_CPU);
}
