#include "os/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "seccomp_filters.h"

static int install(const struct sock_filter *f, unsigned short n)
{
	struct sock_fprog prog = {
	    .len = n,
	    /* The kernel copies the program; the interface merely lacks const. */
	    .filter = (struct sock_filter *)(uintptr_t)f,
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return -errno;
	return 0;
}

int seccomp_install_guest(void)
{
	return install(guest_filter, ARRAY_LEN(guest_filter));
}

int seccomp_install_monitor(void)
{
	return install(monitor_filter, ARRAY_LEN(monitor_filter));
}

int seccomp_install_bridge(bool tcp, enum seccomp_bridge more)
{
	/* The list comes last: it lets nobody install another filter. */
	int r = tcp ? install(bridge_tcp_filter, ARRAY_LEN(bridge_tcp_filter))
		    : install(bridge_unix_filter, ARRAY_LEN(bridge_unix_filter));

	if (r < 0)
		return r;
	switch (more) {
	case SECCOMP_BRIDGE_QUEUE:
		return install(bridge_queue_filter, ARRAY_LEN(bridge_queue_filter));
	case SECCOMP_BRIDGE_LISTENER:
		return install(bridge_listener_filter, ARRAY_LEN(bridge_listener_filter));
	default:
		return install(bridge_filter, ARRAY_LEN(bridge_filter));
	}
}

int seccomp_install_lastword(void)
{
	return install(lastword_filter, ARRAY_LEN(lastword_filter));
}

int seccomp_install_proxy(void)
{
	int r = install(bridge_tcp_filter, ARRAY_LEN(bridge_tcp_filter));

	return r < 0 ? r : install(proxy_filter, ARRAY_LEN(proxy_filter));
}
