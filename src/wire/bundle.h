/*
 * bundle.h: the header of a git bundle that a sandbox wrote, judged before git sees a byte of it.
 *
 * Policy: bundle format 2, or 3 with no capability but object-format; exactly one reference, under
 * the one name that was asked for; at most BUNDLE_PREREQ_MAX prerequisites; object ids in lower-case
 * hex of the length of the format; no NUL; then a pack, version 2 or 3. Extra references (a
 * tag, a second branch) make the whole bundle refused (F8): nothing of it is fetched.
 *
 * Sans-I/O. Not done here: the pack (git index-pack --strict does that in a quarantine) and whether
 * the prerequisites are known (gitback.c).
 */
#ifndef AIRLOCK_WIRE_BUNDLE_H
#define AIRLOCK_WIRE_BUNDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

#define BUNDLE_OID_MAX 64 /* hex digits of SHA-256 */

struct bundle {
	unsigned version;
	bool sha256;
	char head[BUNDLE_OID_MAX + 1]; /* what the one reference names */
	char prereq[BUNDLE_PREREQ_MAX][BUNDLE_OID_MAX + 1];
	size_t prereq_n;
	size_t pack_at;	       /* offset of the pack = length of the header */
	uint32_t pack_objects; /* as the pack announces */
};

/*
 * p: the first n bytes of the bundle. 1: *ret is filled. 0: more bytes are needed (never beyond
 * BUNDLE_HEADER_MAX). -EPROTO, -E2BIG: refused, *why is a static text.
 */
int bundle_parse(const char *p, size_t n, const char *ref, struct bundle *ret, const char **why);

#endif
