/* Messages between client, launcher and guest (B-01): decoding is exact, and what was accepted re-encodes as it was. */
#include "fuzz.h"

#include <errno.h>

#include "base/limits.h"
#include "wire/guest.h"

/* First byte: which message; the rest: its payload. */
#define SAME(kind, done)                                                             \
	do {                                                                         \
		struct gm_##kind m;                                                  \
		int r = gm_##kind##_get(v, &m);                                      \
		MUST(r == 0 || r == -EPROTO || r == -ENOMEM);                        \
		if (r == 0) {                                                        \
			MUST(gm_##kind##_put(&again, &m) == 0);                      \
			MUST(again.len == v.n && memcmp(again.data, v.p, v.n) == 0); \
		}                                                                    \
		done;                                                                \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf again = BUF_INIT(FRAME_MAX);
	struct view v;

	if (n < 2)
		return 0;
	v = (struct view){(const char *)p + 1, n - 1};
	switch (p[0] % 6) {
	case 0:
		SAME(exec, gm_exec_done(&m));
		break;
	case 1:
		SAME(signal, (void)0);
		break;
	case 2:
		SAME(winsize, (void)0);
		break;
	case 3:
		SAME(failed, (void)0);
		break;
	case 4:
		SAME(exited, (void)0);
		break;
	default:
		SAME(packed, (void)0);
	}
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static char sh[] = "sh", c[] = "-c", script[] = "exit 3", var[] = "A=b c",
		    cwd[] = "/workspace";
	char *argv[] = {sh, c, script, NULL}, *env[] = {var, NULL};

	if (i >= 6)
		return false;
	MUST(buf_u8(b, (uint8_t)i) == 0);
	switch (i) {
	case 0:
		MUST(gm_exec_put(b, &(struct gm_exec){7, GX_TTY, 24, 80, cwd, argv, env}) == 0);
		break;
	case 1:
		MUST(gm_signal_put(b, &(struct gm_signal){7, 15}) == 0);
		break;
	case 2:
		MUST(gm_winsize_put(b, &(struct gm_winsize){7, 24, 80}) == 0);
		break;
	case 3:
		MUST(gm_failed_put(b, &(struct gm_failed){.id = 7, .error = 2, .step = "execve"}) ==
		     0);
		break;
	case 4:
		MUST(gm_exited_put(b, &(struct gm_exited){.id = 7, .code = 3, .cpu_ns = 1}) == 0);
		break;
	default:
		MUST(gm_packed_put(b, &(struct gm_packed){.id = 7, .members = 9}) == 0);
	}
	return true;
}

FUZZ_NO_REPAIR()
