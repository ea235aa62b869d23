/*
 * inject-call PID WHAT [PATH]: makes another process try something, as if its code had been taken over, and prints what the
 * kernel said: "ok" or the errno's number.
 *
 * WHAT: read PATH, write PATH, tcp PORT, udp, unix, exec. The process is stopped, its registers are exchanged for one system
 * call at the instruction where it waits, and put back. amd64 only.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define BELOW 4096 /* bytes below the stack pointer that nobody uses now */

static pid_t pid;
static struct user_regs_struct saved;

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static void await_stop(void)
{
	int status;

	if (waitpid(pid, &status, __WALL) < 0)
		fail("wait");
	if (!WIFSTOPPED(status)) {
		(void)printf("killed\n");
		exit(0);
	}
}

/* One call of the other process, at the very instruction that it last entered the kernel with. */
static long call(long nr, long a, long b, long c, long d)
{
	struct user_regs_struct r = saved;

	r.rip -= 2; /* `syscall` */
	r.rax = r.orig_rax = (unsigned long long)nr;
	r.orig_rax = (unsigned long long)-1;
	r.rdi = (unsigned long long)a;
	r.rsi = (unsigned long long)b;
	r.rdx = (unsigned long long)c;
	r.r10 = (unsigned long long)d;
	r.r8 = r.r9 = 0;
	if (ptrace(PTRACE_SETREGS, pid, NULL, &r) < 0 ||
	    ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0)
		fail("call");
	await_stop();
	if (ptrace(PTRACE_GETREGS, pid, NULL, &r) < 0)
		fail("result");
	return (long)r.rax;
}

static long place(const void *p, size_t n)
{
	long at = (long)(saved.rsp - BELOW);
	unsigned char padded[256] = {0};

	memcpy(padded, p, n);
	for (size_t i = 0; i < n; i += sizeof(long)) {
		long word;

		memcpy(&word, padded + i, sizeof(word));
		if (ptrace(PTRACE_POKEDATA, pid, (void *)(at + (long)i), (void *)word) < 0)
			fail("memory");
	}
	return at;
}

static long try_tcp(const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	long fd = call(SYS_socket, AF_INET, SOCK_STREAM, 0, 0), r;

	if (fd < 0)
		return fd;
	r = call(SYS_connect, fd, place(&a, sizeof(a)), sizeof(a), 0);
	(void)call(SYS_close, fd, 0, 0, 0);
	return r;
}

static long attempt(const char *what, const char *arg)
{
	size_t n = arg ? strlen(arg) + 1 : 1;

	if (n > 200)
		return -ENAMETOOLONG;
	if (strcmp(what, "read") == 0)
		return call(SYS_openat, AT_FDCWD, place(arg, n), O_RDONLY, 0);
	if (strcmp(what, "write") == 0)
		return call(SYS_openat, AT_FDCWD, place(arg, n), O_WRONLY | O_CREAT, 0600);
	if (strcmp(what, "tcp") == 0)
		return try_tcp(arg);
	if (strcmp(what, "udp") == 0)
		return call(SYS_socket, AF_INET, SOCK_DGRAM, 0, 0);
	if (strcmp(what, "unix") == 0)
		return call(SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0);
	if (strcmp(what, "exec") == 0)
		return call(SYS_execve, place("/bin/true", 10), 0, 0, 0);
	return -EINVAL;
}

int main(int argc, char **argv)
{
	long r;

	if (argc < 3)
		return 2;
	pid = (pid_t)strtol(argv[1], NULL, 10);
	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0)
		fail("attach");
	await_stop();
	if (ptrace(PTRACE_GETREGS, pid, NULL, &saved) < 0)
		fail("registers");
	r = attempt(argv[2], argc > 3 ? argv[3] : NULL);
	if (ptrace(PTRACE_SETREGS, pid, NULL, &saved) < 0 ||
	    ptrace(PTRACE_DETACH, pid, NULL, NULL) < 0)
		fail("detach");
	if (r < 0)
		(void)printf("%ld\n", -r);
	else
		(void)printf("ok\n");
	return 0;
}
