#include "provider/provider.h"

#include <string.h>

#include "base/cleanup.h"

static const struct provider_ops *const providers[] = {
    &provider_native, &provider_local, &provider_ssh, &provider_ssh_in_place, &provider_ssh_sandbox,
};

const struct provider_ops *provider_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(providers); i++)
		if (strcmp(providers[i]->name, name) == 0)
			return providers[i];
	return NULL;
}
