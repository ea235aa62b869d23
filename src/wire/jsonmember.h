/* jsonmember.h: members of parsed JSON (jansson) where one that is absent and one of another type mean nothing. */
#ifndef AIRLOCK_WIRE_JSONMEMBER_H
#define AIRLOCK_WIRE_JSONMEMBER_H

#include <jansson.h>

/* Borrowed from j; "" where there is no such text. j may be NULL. */
static inline const char *json_member_text(const json_t *j, const char *key)
{
	const char *t = json_string_value(json_object_get(j, key));

	return t ? t : "";
}

#endif
