#include "api/managed.h"

#include <string.h>

#include "api/jsonfile.h"
#include "api/view.h"
#include "wire/jsonmember.h"

/* Borrowed: its "sandbox", or NULL. A version that we do not know may mean anything. */
static const json_t *sandbox_of(const json_t *doc)
{
	const json_t *s = json_object_get(doc, "sandbox");

	return json_integer_value(json_object_get(doc, "version")) == 1 &&
		       json_member_text(s, "provider")[0]
		   ? s
		   : NULL;
}

int managed_check(const char *path, struct err *e)
{
	json_t *doc = path[0] == '/' ? jsonfile_read(path, MANAGED_CONFIG_MAX) : NULL;
	bool good = sandbox_of(doc) != NULL;

	json_decref(doc);
	return good
		   ? 0
		   : err_set(
			 e, ERR_USAGE,
			 "--managed-config %.200s is no absolute path of a document {\"version\": 1, "
			 "\"sandbox\": {\"provider\": ...}}",
			 path);
}

bool managed_covers(const struct call *c, const struct environment_row *row)
{
	json_t *doc, *config;
	const json_t *s;
	bool covers = false;

	if (!c->api->cfg.managed_config || strcmp(row->driver, "sandbox") != 0 ||
	    !view_is_platform_row(c, row))
		return false;
	doc = jsonfile_read(c->api->cfg.managed_config, MANAGED_CONFIG_MAX);
	config = json_loads(row->config ? row->config : "{}", 0, NULL);
	s = sandbox_of(doc);
	if (s && strcmp(json_member_text(s, "provider"), json_member_text(config, "provider")) == 0)
		covers =
		    !json_object_get(s, "image") ||
		    strcmp(json_member_text(s, "image"), json_member_text(config, "image")) == 0;
	json_decref(doc);
	json_decref(config);
	return covers;
}
