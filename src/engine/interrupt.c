#include "engine/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/cleanup.h"

/*
 * A signal handler has no argument, so this is the one place outside prog/ with state of the
 * process: what it holds is a property of the process.
 */
static volatile int first, second, winch, first_signo, once;
static int wake[2] = {-1, -1};

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
/* Meant for the command: dd, servers and schedulers give them a meaning; here they would only kill us. */
static const int passed[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};
static volatile sig_atomic_t to_pass[ARRAY_LEN(passed)];

static void on_signal(int signo)
{
	int saved = errno;

	if (signo == SIGWINCH) {
		winch = 1;
	} else if (first) {
		second = !once;
	} else {
		first_signo = signo;
		first = 1;
	}
	/* A full pipe has a wake-up in it already. */
	if (write(wake[1], "", 1) < 0)
		errno = 0;
	errno = saved;
}

static void on_passed(int signo)
{
	int saved = errno;

	for (size_t i = 0; i < ARRAY_LEN(passed); i++)
		if (passed[i] == signo)
			to_pass[i] = 1;
	if (write(wake[1], "", 1) < 0)
		errno = 0;
	errno = saved;
}

int interrupt_passed(void)
{
	for (size_t i = 0; i < ARRAY_LEN(passed); i++)
		if (to_pass[i]) {
			to_pass[i] = 0;
			return passed[i];
		}
	return 0;
}

int interrupt_setup(struct err *e)
{
	struct sigaction sa = {.sa_handler = on_signal};

	if (wake[0] >= 0)
		return 0;
	if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, errno, "create a pipe for signals");
	(void)sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
		struct sigaction old;

		/* nohup: what was ignored stays ignored. */
		if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN &&
		    stops[i] == SIGHUP)
			continue;
		if (sigaction(stops[i], &sa, NULL) < 0)
			return err_sys(e, errno, "install signal handler");
	}
	sa.sa_flags = SA_RESTART;
	if (sigaction(SIGWINCH, &sa, NULL) < 0)
		return err_sys(e, errno, "install signal handler");
	sa.sa_handler = on_passed;
	for (size_t i = 0; i < ARRAY_LEN(passed); i++)
		(void)sigaction(passed[i], &sa, NULL);
	sa.sa_handler = SIG_IGN;
	(void)sigaction(SIGPIPE, &sa, NULL);
	/* A file at the limit of file sizes is a full disk (EFBIG), not the end of us. */
	(void)sigaction(SIGXFSZ, &sa, NULL);
	return 0;
}

int interrupt_setup_once(struct err *e)
{
	once = 1;
	return interrupt_setup(e);
}

int interrupt_fd(void)
{
	return wake[0];
}

void interrupt_ack(void)
{
	char b[64];

	if (wake[0] < 0)
		return;
	while (read(wake[0], b, sizeof(b)) > 0)
		continue;
}

const volatile int *interrupt_first(void)
{
	return &first;
}

const volatile int *interrupt_second(void)
{
	return &second;
}

int interrupt_signo(void)
{
	return first_signo;
}

bool interrupt_winch(void)
{
	bool was = winch != 0;

	winch = 0;
	return was;
}

void interrupt_child(void)
{
	struct sigaction sa = {.sa_handler = SIG_DFL};
	sigset_t none;

	(void)sigemptyset(&sa.sa_mask);
	(void)sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		(void)sigaction(s, &sa, NULL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}
