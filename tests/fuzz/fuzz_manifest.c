/* Manifests (S1-10): a broken one is refused or stops at the broken line; a walk rises strictly and finds itself. */
#include "fuzz.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct manifest_entry m, again;
	static char last[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int fd = memfd_create("manifest", MFD_CLOEXEC);
	struct manifest *mf = NULL;
	size_t pos = 0, last_len = 0;
	bool first = true;
	int r;

	MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	if (manifest_open(fd, &mf, NULL) < 0)
		return 0;
	while ((r = manifest_next(mf, &pos, &m)) == 1) {
		MUST(m.kind == 'd' || m.kind == 'f' || m.kind == 'l');
		MUST(path_is_member(m.path, m.path_len) && m.mode <= 0777);
		/* A file that somebody wrote may be out of order; bisection then must still end. */
		r = manifest_find(mf, m.path, m.path_len, &again);
		MUST(r == 0 || r == 1 || r == -EPROTO);
		if (r == 1)
			MUST(again.path_len == m.path_len &&
			     memcmp(again.path, m.path, m.path_len) == 0);
		if (!first && manifest_path_cmp(last, last_len, m.path, m.path_len) >= 0)
			break;
		memcpy(last, m.path, m.path_len);
		last_len = m.path_len;
		first = false;
	}
	MUST(r == 0 || r == 1 || r == -EPROTO);
	manifest_seek_below(mf, "a", 1, &pos);
	(void)manifest_next(mf, &pos, &m);
	manifest_free(mf);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static struct manifest_entry m;
	struct manifest_writer w;
	_cleanup_fd_ int fd = -1;
	ssize_t got;

	if (i >= 3)
		return false;
	fd = memfd_create("seed", MFD_CLOEXEC);
	MUST(fd >= 0 && manifest_writer_init(&w, fd, NULL) == 0);
	for (size_t k = 0; k < i * 40; k++) {
		m = (struct manifest_entry){
		    .kind = "dfl"[k % 3], .mode = 0644, .layer = 1, .size = k, .ino = 7 + k};
		m.path_len = (size_t)snprintf(m.path, sizeof(m.path), "a/%03zu name%%\n", k);
		if (m.kind == 'l')
			m.target_len = (size_t)snprintf(m.target, sizeof(m.target), "../b%zu", k);
		MUST(manifest_writer_add(&w, &m, NULL) == 0);
	}
	MUST(manifest_writer_finish(&w, NULL) == 0);
	manifest_writer_done(&w);
	do {
		char chunk[4096];

		got = pread(fd, chunk, sizeof(chunk), (off_t)b->len);
		if (got > 0)
			MUST(buf_put(b, chunk, (size_t)got) == 0);
	} while (got > 0);
	return true;
}

FUZZ_NO_REPAIR()
