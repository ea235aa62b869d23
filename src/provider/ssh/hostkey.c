#include "provider/ssh/hostkey.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/process.h"

#define LOG_MAX (256 << 10)

/* ssh says it before the other side can say anything of its own: the first such line counts. */
static void find(const char *log, char out[SSH_HOSTKEY_MAX])
{
	static const char mark[] = "debug1: Server host key: ";
	const char *p = strstr(log, mark);
	size_t n;

	if (!p || (p != log && p[-1] != '\n'))
		return;
	p += sizeof(mark) - 1;
	n = strcspn(p, "\r\n");
	for (size_t i = 0; i < n; i++)
		if (p[i] < ' ' || p[i] > '~')
			return;
	if (n < SSH_HOSTKEY_MAX)
		(void)snprintf(out, SSH_HOSTKEY_MAX, "%.*s", (int)n, p);
}

void ssh_hostkey(const struct ssh_target *t, char out[SSH_HOSTKEY_MAX])
{
	static const char *const more[] = {"ssh", "-oLogLevel=DEBUG1", "-E", "/dev/stdout"};
	_cleanup_strv_ char **words = NULL, **argv = NULL, **env = NULL;
	_cleanup_buf_ struct buf log = BUF_INIT(LOG_MAX);
	struct process_opts o = PROCESS_OPTS_INIT;
	struct err e = ERR_INIT;
	int status, r = 0;

	out[0] = '\0';
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(more); i++)
		r = strv_add(&argv, more[i]);
	if (r < 0 || ssh_target_argv(t, NULL, "true", &words, &e) < 0 ||
	    ssh_target_env(&env, &e) < 0)
		return;
	for (size_t i = 1; r == 0 && words[i]; i++)
		r = strv_add(&argv, words[i]);
	if (r < 0)
		return;
	o.argv = (const char *const *)argv;
	o.envp = (const char *const *)env;
	o.out = &log;
	o.session = true;
	o.timeout_ms = REMOTE_CONNECT_S * 1000;
	(void)process_run(&o, &status, NULL, &e);
	if (log.len)
		find(buf_text(&log), out);
}
