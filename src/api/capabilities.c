/*
 * capabilities.c: what adapters and providers can do here (api.md 5). A board read: a run is told its own place, never this
 * (CP-02).
 */
#include "api/adapters.h"

#include "api/api.h"

static const char *word(bool yes)
{
	return yes ? "supported" : "unsupported";
}

static json_t *adapter(const struct adapter *a)
{
	return json_pack("{s:s,s:{s:s,s:s,s:s,s:s},s:{s:s,s:s}}", "adapterType", a->type, "drivers",
			 "local", "supported", "ssh", word(a->remote), "sandbox", word(a->remote),
			 "plugin", "unsupported", "sandboxProviders", "fake", "unsupported",
			 "native", word(a->remote));
}

static json_t *provider(bool native)
{
	return json_pack("{s:s,s:b,s:b,s:b,s:b,s:b,s:[],s:b,s:b,s:b,s:s,s:s}", "status",
			 word(native), "supportsSavedProbe", 1, "supportsUnsavedProbe", 1,
			 "supportsRunExecution", (int)native, "supportsReusableLeases", (int)native,
			 "supportsInteractiveSetup", 0, "interactiveSetupConnectionTypes",
			 "supportsTemplateCapture", 0, "supportsTemplateDelete", 0,
			 "supportsLoginPty", 0, "displayName",
			 native ? "Airlock native sandbox" : "Fake", "source", "builtin");
}

int h_env_capabilities(struct call *c)
{
	json_t *list = json_array();

	for (const struct adapter *a = adapters; a->type; a++)
		(void)json_array_append_new(list, adapter(a));
	return reply_json(c, 200,
			  json_pack("{s:o,s:{s:s,s:s,s:s,s:s},s:{s:o,s:o}}", "adapters", list,
				    "drivers", "local", "supported", "ssh", "supported", "sandbox",
				    "supported", "plugin", "unsupported", "sandboxProviders",
				    "fake", provider(false), "native", provider(true)));
}
