#include "api/runwish.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/jsonmember.h"

static const char *const wishes[] = {"strict", "onConflict", "exclude", "git", "syncOut"};

const char *runwish_in_place(const json_t *body)
{
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
		const json_t *v = json_object_get(body, wishes[i]);

		if (v && !json_is_false(v))
			return wishes[i];
	}
	return NULL;
}

int runwish_put(json_t *request, const json_t *body)
{
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
		json_t *v = json_object_get(body, wishes[i]);

		if (v && json_object_set(request, wishes[i], v) < 0)
			return -ENOMEM;
	}
	return 0;
}

int runwish_texts(const json_t *texts, char ***ret, struct err *e)
{
	for (size_t i = 0; i < json_array_size(texts); i++)
		if (strv_add(ret, json_string_value(json_array_get(texts, i))) < 0)
			return err_set(e, ERR_NOMEM, "run: out of memory");
	return 0;
}

int runwish_get(const json_t *request, struct runhost_want *w, char ***ret_exclude, struct err *e)
{
	w->strict = json_is_true(json_object_get(request, "strict"));
	w->take_sandbox = strcmp(json_member_text(request, "onConflict"), "take-sandbox") == 0;
	w->by_tar = strcmp(json_member_text(request, "syncOut"), "tar") == 0;
	w->git = json_member_text(request, "git");
	return runwish_texts(json_object_get(request, "exclude"), ret_exclude, e);
}
