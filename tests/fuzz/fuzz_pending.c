/*
 * Fuzz target: the list of a change set that waits for a decision. It lies in the user's state directory, so
 * damage is more likely than malice; either way it is refused whole or every entry has a path that can be used,
 * and a preview of it ends.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "rig.h"

#define FIXED offsetof(struct change, path) /* as in pending.c */
#define MAGIC "airlock-pending 2\n"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct rig g;
	struct change *c;
	struct err e = ERR_INIT;
	int r;

	if (n > 32768)
		return 0;
	rig_start(&g);
	rig_file(g.ws, "a", "host", 4, 0644);
	rig_file(g.u.run_fd, "pending/list", p, n, 0600);
	rig_file(g.u.run_fd, "pending/c/1", "one", 3, 0600);
	rig_link(g.u.run_fd, "pending/c/2", "../../../out/victim");
	g.u.s.mode = UM_APPLY;
	MUST(stage_open(&g.u, &e) == 0 && chlist_new(g.u.st.dir, &g.u.list) == 0);
	r = pending_load(&g.u, &e);
	MUST(r <= 0 && (r < 0) == (e.code != ERR_NONE));
	c = malloc(sizeof(*c));
	MUST(c);
	for (uint64_t i = 0; r == 0 && i < chlist_count(g.u.list); i++) {
		MUST(chlist_get(g.u.list, i, c) == 0);
		MUST(c->path_len == 0 || path_is_member(c->path, c->path_len));
		MUST(c->kind <= MK_UNKNOWN && c->kind != MK_OTHER && c->mode <= 0777);
	}
	free(c);
	stage_close(&g.u, false);
	rig_end(&g);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static struct change c;
	char *room;

	if (i >= 24)
		return false;
	MUST(buf_put(b, MAGIC, sizeof(MAGIC) - 1) == 0);
	for (size_t k = 0; k < i % 6; k++) {
		memset(&c, 0, sizeof(c));
		c.kind = (uint8_t)(k % 4);
		c.mode = 0644;
		c.seq = k;
		c.id = c.kind == MK_FILE ? 1 : c.kind == MK_LINK ? 2 : 0;
		c.size = i;
		c.path_len = (uint32_t)snprintf(c.path, sizeof(c.path), "%zu/%zu", i, k);
		MUST(buf_put(b, &c, FIXED + c.path_len) == 0);
	}
	memset(&c, 0, sizeof(c));
	c.path_len = UINT32_MAX;
	room = buf_room(b, FIXED);
	MUST(room);
	memcpy(room, &c, FIXED);
	buf_add(b, FIXED);
	fuzz_repair((uint8_t *)b->data, b->len);
	return true;
}

/* Sum and count in the last record are made right. */
void fuzz_repair(uint8_t *p, size_t n)
{
	const size_t at_len = offsetof(struct change, path_len),
		     at_hash = offsetof(struct change, hash), at_seq = offsetof(struct change, seq);
	crypto_generichash_state h;
	size_t at = sizeof(MAGIC) - 1;
	uint64_t count = 0;
	uint32_t len;

	MUST(sodium_init() >= 0);
	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	while (n >= at && n - at >= FIXED) {
		memcpy(&len, p + at + at_len, sizeof(len));
		if (len == UINT32_MAX) {
			(void)crypto_generichash_final(&h, p + at + at_hash, MANIFEST_HASH);
			memcpy(p + at + at_seq, &count, sizeof(count));
			return;
		}
		if (len > n - at - FIXED)
			return;
		(void)crypto_generichash_update(&h, p + at, FIXED + len);
		at += FIXED + len;
		count++;
	}
}
