/*
 * header.h: one HTTP header as bytes, and its syntax (RFC 9110).
 *
 * A name is a token of 1..BRIDGE_HEADER_NAME_MAX bytes; a value is TAB, 20-7E and 80-FF. Both transports, the
 * gateway inside and the guard outside share these two rules.
 */
#ifndef AIRLOCK_WIRE_HEADER_H
#define AIRLOCK_WIRE_HEADER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cursor.h"
#include "base/limits.h"

struct header {
	struct view name, value;
};

bool header_name_ok(struct view name);
bool header_value_ok(struct view value);
/* Case does not count; lower is in lower case. */
bool header_name_is(struct view name, const char *lower);
/* As strcmp of the lower-cased name with lower. */
int header_name_compare(struct view name, const char *lower);

#endif
