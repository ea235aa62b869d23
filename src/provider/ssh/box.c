#include "provider/ssh/box.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "provider/inforce.h"
#include "provider/native/fill.h"
#include "provider/native/step.h"
#include "provider/ssh/layers.h"
#include "provider/ssh/tool.h"
#include "wire/remote.h"
#include "wire/remote_box.h"

/* In the words of the doctor, where it finds the cause; else what the launcher said. */
static int explain(const struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_buf_ struct buf why = BUF_INIT(4096), text = BUF_INIT(4096);
	struct rm_not_boxed m = {0};
	int r = rm_not_boxed_get(x->answer, &m);

	if (r == 0)
		r = str_printable(&text, m.text, strlen(m.text));
	free(m.text);
	if (r < 0)
		return err_set(e, ERR_PROTOCOL, "%s: malformed answer", x->target.label);
	if (!m.step)
		return err_set(e, ERR_UNAVAILABLE, "sandbox not started on %s: %s", x->target.label,
			       buf_text(&text));
	ssh_layers_missing(&x->target, s->without, s->cancel, &why);
	return err_set(
	    e, m.error == ENOSPC ? ERR_NO_SPACE : ERR_UNAVAILABLE,
	    "sandbox not started on %s: %s (%s): %s.%s 'airlock doctor --ssh ... --remote-sandbox' shows every layer "
	    "there; nothing was run, as nothing runs with less than was asked for",
	    x->target.label, step_name((enum step)m.step), buf_text(&text), strerror((int)m.error),
	    why.len ? buf_text(&why) : "");
}

static int ask(struct ssh_session *x, const struct sandbox_spec *s, char *launch, char *gateway,
	       struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	char none[] = "";
	const struct rm_box m = {.net = s->net,
				 .without = s->without,
				 .memory_bytes = s->limits.memory_bytes,
				 .pids = s->limits.pids,
				 .cpu_milli = s->limits.cpu_milli,
				 .launch = launch,
				 .gateway = gateway,
				 .run = none,
				 .guest = none,
				 .gateway_path = none};
	int r;

	(void)rm_box_put(&b, &m);
	r = guestlink_request(&x->link, RM_BOX, &b, NULL, 0, e);
	if (r == 0)
		r = session_await(x, RM_BOXED, s->cancel, e);
	return r > 0 ? explain(x, s, e) : r;
}

int ssh_box(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	char launch[SSH_HASH_LEN + 1], gateway[SSH_HASH_LEN + 1] = "";
	struct plan p = {.net = s->net, .without = s->without};
	uint32_t landlock, limits, root;
	struct cursor c;
	int r = ssh_tool_put(x, "launch", s->cancel, launch, e);

	if (r == 0 && s->gateway)
		r = ssh_tool_put(x, "gateway", s->cancel, gateway, e);
	if (r == 0)
		r = ask(x, s, launch, gateway, e);
	if (r < 0)
		return r;
	cursor_init(&c, x->answer.p, x->answer.n);
	landlock = cursor_u32(&c);
	limits = cursor_u32(&c);
	root = cursor_u32(&c);
	if (!cursor_end(&c))
		return err_set(e, ERR_PROTOCOL, "%s: malformed answer", x->target.label);
	p.memory_bytes = s->limits.memory_bytes;
	p.pids = s->limits.pids;
	p.cpu_milli = s->limits.cpu_milli;
	p.uid_host = root ? SANDBOX_UID : 0;
	inforce_fill(&x->sb, &p, landlock, limits);
	return 0;
}
