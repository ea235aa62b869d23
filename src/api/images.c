/*
 * images.c: set-up sessions for custom images (api.md 9), as far as there are any: no provider of this build has an
 * interactive set-up, which its capabilities say, so every start ends at the gate for providers and no session or template exists.
 *
 * The routes are there all the same: who may not ask is denied like anywhere, before anything is looked up (IM-01), and
 * who may gets the gate's own words instead of a path that is unknown.
 */
#include <string.h>

#include "api/api.h"
#include "api/environments.h"

static const char no_session[] = "Environment customImage setup session not found",
		  no_template[] = "Active environment customImage template not found";

int h_image_state(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};

	if (env_find(c, &row))
		return 0;
	return reply_json(c, 200,
			  json_pack("{s:n,s:n,s:n,s:n,s:n}", "activeTemplate",
				    "activeTemplateMatchesConfig", "activeTemplateDrift",
				    "activeSession", "latestSession"));
}

int h_image_session_open(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};

	if (env_find(c, &row))
		return 0;
	if (strcmp(row.driver, "sandbox") != 0)
		return reply_error(
		    c, 422,
		    "Environment customImage setup is only supported for sandbox environments.");
	return reply_error(c, 422,
			   "Sandbox provider \"native\" does not support interactive setup.");
}

int h_image_session(struct call *c)
{
	return reply_error(c, 404, no_session);
}

int h_image_template(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};

	return env_find(c, &row) ? 0 : reply_error(c, 404, no_template);
}
