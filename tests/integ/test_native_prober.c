/* RT: the prober runs inside, tries every known way out and finds none; and it does find what is open. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "native_box.h"

#define W(s) ((char *)(uintptr_t)(s))
#define ATTEMPTS 36 /* of tests/hostile/prober.c: an attempt that is dropped there is missed here */

struct host {
	int tcp, abstract;
	char port[16], name[64], pid[16];
};

static void host_up(struct host *h)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t n = sizeof(in);

	h->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(h->tcp, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(h->tcp, 8), 0);
	assert_int_equal(getsockname(h->tcp, (struct sockaddr *)&in, &n), 0);
	(void)snprintf(h->port, sizeof(h->port), "%u", ntohs(in.sin_port));
	(void)snprintf(h->pid, sizeof(h->pid), "%d", (int)getpid());
	(void)snprintf(h->name, sizeof(h->name), "airlock-probe-%d", (int)getpid());
	memcpy(un.sun_path + 1, h->name, strlen(h->name));
	h->abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
	    bind(h->abstract, (struct sockaddr *)&un,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(h->name))),
	    0);
	assert_int_equal(listen(h->abstract, 8), 0);
}

static void host_down(struct host *h)
{
	(void)close(h->tcp);
	(void)close(h->abstract);
}

/* The prober lies beside this program; into the base layer with it. */
static void bring_prober(struct nbox *b)
{
	char self[4096], buf[65536];
	_cleanup_free_ char *to = path_join(b->base, "prober");
	_cleanup_fd_ int in = -1, out = -1;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 16);

	assert_true(n > 0);
	self[n] = '\0';
	(void)snprintf(strrchr(self, '/'), 16, "/prober");
	in = open(self, O_RDONLY | O_CLOEXEC);
	out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	/* On the host it may be anybody's: inside it is only read and run. */
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text++;
	}
	return n;
}

static void probe(struct nbox *b, struct host *h)
{
	char *argv[] = {W("/workspace/prober"), b->dir, h->port, h->name, h->pid, NULL};

	assert_int_equal(nbox_exec(b, argv), 0);
}

static void test_no_way_out(void **state)
{
	struct nbox b;
	struct host h;

	(void)state;
	host_up(&h);
	nbox_init(&b);
	bring_prober(&b);
	nbox_start(&b);
	probe(&b, &h);
	if (strstr(buf_text(&b.out), "\"escaped\":true"))
		fail_msg("a way out: %.300s", strstr(buf_text(&b.out), "\"escaped\":true") - 40);
	assert_int_equal(count(buf_text(&b.out), "\"escaped\":false"), ATTEMPTS);
	/* pid 1 has survived it all. */
	assert_int_equal(nbox_sh(&b, "echo alive"), 0);
	assert_string_equal(buf_text(&b.out), "alive\n");
	nbox_done(&b);
	host_down(&h);
}

/* With the host's network its loopback is in reach, as said aloud; abstract sockets are not. */
static void test_net_host(void **state)
{
	struct nbox b;
	struct host h;

	(void)state;
	host_up(&h);
	nbox_init(&b);
	bring_prober(&b);
	b.spec.net = NET_HOST;
	nbox_start(&b);
	probe(&b, &h);
	assert_non_null(
	    strstr(buf_text(&b.out), "{\"attempt\":\"host-loopback\",\"escaped\":true"));
	/* Landlock scope; skipped where the kernel has none. */
	for (size_t i = 0; i < b.sb->isolation_len; i++)
		if (str_eq(b.sb->isolation[i].layer, "landlock") &&
		    str_eq(b.sb->isolation[i].state, "in force"))
			assert_non_null(strstr(buf_text(&b.out),
					       "{\"attempt\":\"host-abstract\",\"escaped\":false"));
	nbox_done(&b);
	host_down(&h);
}

/* The prober can go red: without seccomp, what only seccomp stops is found. */
static void test_prober_sees(void **state)
{
	struct nbox b;
	struct host h;

	(void)state;
	host_up(&h);
	nbox_init(&b);
	bring_prober(&b);
	b.spec.without = WITHOUT_SECCOMP;
	nbox_start(&b);
	probe(&b, &h);
	assert_non_null(strstr(buf_text(&b.out), "{\"attempt\":\"namespaces\",\"escaped\":true"));
	assert_non_null(strstr(buf_text(&b.out), "{\"attempt\":\"kernel-calls\",\"escaped\":true"));
	nbox_done(&b);
	host_down(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_no_way_out),
	    cmocka_unit_test(test_net_host),
	    cmocka_unit_test(test_prober_sees),
	};

	return cmocka_run_group_tests_name("native_prober", tests, NULL, NULL);
}
