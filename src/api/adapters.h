/* adapters.h: kinds of agents, and which drivers of environments each can work in (api.md 5). */
#ifndef AIRLOCK_API_ADAPTERS_H
#define AIRLOCK_API_ADAPTERS_H

#include <stdbool.h>

struct adapter {
	const char *type;
	bool remote; /* its place may be another than this host */
};

/* In the order of the document; the last has no type. */
extern const struct adapter adapters[];
bool adapter_known(const char *type);
/* Unknown adapters take the local driver only. */
bool adapter_takes(const char *type, const char *driver);

#endif
