#include "provider/ssh/places.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "provider/ssh/look.h"
#include "provider/ssh/reach.h"
#include "provider/ssh/target.h"

static const char script[] =
    PLACES_LEFT "while IFS= read -r p && test -n \"$p\"; do "
		"test \"$p\" = /tmp || { test -d \"$p\" && test -O \"$p\"; } || continue; "
		"test -L \"$p\" || left; done";

int ssh_places_sweep(const struct sandbox_spec *s, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_buf_ struct buf in = BUF_INIT(MAPS_MAX * PATH_MEMBER_MAX);
	struct ssh_look o = {.target = &t,
			     .script = script,
			     .timeout_ms = REMOTE_TREE_MS,
			     .reach_ns = reach_ns(s),
			     .cancel = s->cancel};
	int r = ssh_target_parse(s->remote, &t, e);

	if (r == 0)
		r = ssh_target_identity(&t, s->identities, e);
	for (char *const *p = s->places; p && *p; p++)
		if (!strchr(*p, '\n'))
			(void)buf_putf(&in, "%s\n", *p);
	if (r < 0)
		return r;
	if (buf_putc(&in, '\n') < 0)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	o.input = buf_text(&in);
	r = ssh_look(&o, &said, e);
	if (r == 0 && !said.done)
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "ssh %s: what --map left there could not be removed: its shell did not come to the end of our script",
		    t.label);
	return r;
}
