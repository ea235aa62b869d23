/*
 * confine.h: a helper gives up everything it does not need, before its first foreign byte.
 *
 * Layers, in this order: core dumps and memory bounded, capabilities dropped, no new
 * privileges, Landlock (file trees, network, signals, abstract sockets), seccomp allow-list.
 * None can be taken back. A layer that the kernel lacks is an error that names it, unless the
 * caller passes its `without` bit; confine_self never leaves one out on its own. To be called with one thread.
 *
 * Not done here: namespaces (the launcher's), closing of inherited descriptors (os/chan and
 * close-on-exec do that), resource control by cgroup.
 */
#ifndef AIRLOCK_OS_CONFINE_H
#define AIRLOCK_OS_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What may be done below a tree. Never: execute, device nodes, sockets, FIFOs. */
enum confine_access {
	CONFINE_READ = 1 << 0,	/* open for reading, list */
	CONFINE_WRITE = 1 << 1, /* create, write, truncate, remove, rename, link; implies reading */
};

struct confine_path {
	int fd; /* directory (O_PATH is enough); borrowed */
	unsigned access;
};

/* Bits of `without`. */
#define CONFINE_NO_LANDLOCK 1u
#define CONFINE_NO_SECCOMP 2u

struct confine_opts {
	const struct confine_path *paths;
	size_t paths_len;
	/* TCP ports that may be connected to, at any address (Landlock ABI 4); bind never */
	const uint16_t *connect_ports;
	size_t connect_ports_len;
	uint64_t keep_caps;  /* mask of 1 << CAP_x kept when the caller has them; usually 0 */
	uint64_t data_max;   /* bytes of private writable memory; 0: leave */
	unsigned nofile_max; /* 0: leave */
	unsigned without;
	/*
	 * The place to start threads: called when every layer but the system call filter is in force, which a
	 * new thread inherits; the filter, which lets nobody start one, is then laid over all of them. A
	 * thread must have begun to run when it returns. May be NULL.
	 */
	int (*threads)(void *arg, struct err *e);
	void *threads_arg;
};

/* Landlock ABI of the kernel: 0 when there is none. */
int confine_landlock_abi(void);
/* 0, or -EOPNOTSUPP/other errno with e: the process must end then, it is half confined. */
int confine_self(const struct confine_opts *o, struct err *e);

#endif
