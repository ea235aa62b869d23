#include "api/adapters.h"

#include <string.h>

const struct adapter adapters[] = {
    {"process", false},		 {"http", false},
    {"claude_local", true},	 {"codex_local", true},
    {"paperclip_runner", true},	 {"cursor_cloud", false},
    {"gemini_local", true},	 {"grok_local", true},
    {"hermes_gateway", false},	 {"hermes_local", false},
    {"kimi_local", true},	 {"opencode_local", true},
    {"pi_local", true},		 {"cursor", true},
    {"openclaw_gateway", false}, {NULL, false},
};

bool adapter_known(const char *type)
{
	for (const struct adapter *a = adapters; a->type; a++)
		if (strcmp(a->type, type) == 0)
			return true;
	return false;
}

bool adapter_takes(const char *type, const char *driver)
{
	for (const struct adapter *a = adapters; a->type; a++)
		if (strcmp(a->type, type) == 0)
			return strcmp(driver, "local") == 0 ||
			       (a->remote && strcmp(driver, "plugin") != 0);
	return strcmp(driver, "local") == 0;
}
