#include "guest/fork.h"

#include <sys/syscall.h>
#include <unistd.h>

void fork_close(int *keep, size_t n)
{
	unsigned from = 3;

	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k && keep[k] < keep[k - 1]; k--) {
			int t = keep[k];

			keep[k] = keep[k - 1];
			keep[k - 1] = t;
		}
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < 0)
			continue;
		if ((unsigned)keep[i] > from)
			(void)syscall(SYS_close_range, from, (unsigned)keep[i] - 1, 0u);
		from = (unsigned)keep[i] + 1;
	}
	(void)syscall(SYS_close_range, from, ~0u, 0u);
}
