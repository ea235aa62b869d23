#include "os/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* All locked; "no set-uid fix-up" and "no root" mean that uid 0 is an id like any other. */
#define SECUREBITS                                                                               \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                         \
	 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | \
	 SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

/* Far above any kernel's CAP_LAST_CAP: the first unknown number ends the loop with EINVAL. */
#define CAP_NUMBERS 256

static int get(struct __user_cap_data_struct d[2])
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &h, d) < 0 ? -errno : 0;
}

int caps_drop_bounding(void)
{
	if (!caps_have(CAP_SETPCAP))
		return 0;
	for (unsigned c = 0; c < CAP_NUMBERS; c++) {
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL)
			break;
		return -errno;
	}
	return prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0) < 0 ? -errno : 0;
}

int caps_drop_all(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};
	int r;

	/* EINVAL: no ambient set before Linux 4.3. */
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return -errno;
	if (syscall(SYS_capset, &h, d) < 0)
		return -errno;
	r = get(d);
	if (r < 0)
		return r;
	if (d[0].permitted | d[1].permitted | d[0].effective | d[1].effective | d[0].inheritable |
	    d[1].inheritable)
		return -EPERM;
	return 0;
}

bool caps_have(unsigned cap)
{
	struct __user_cap_data_struct d[2] = {{0}};

	if (get(d) < 0 || cap >= 64)
		return false;
	return d[cap / 32].effective & (UINT32_C(1) << (cap % 32));
}
