#include "wire/header.h"

#include <string.h>

static unsigned char lower(unsigned char c)
{
	return c >= 'A' && c <= 'Z' ? (unsigned char)(c | 0x20) : c;
}

bool header_name_ok(struct view name)
{
	static const char more[] = "!#$%&'*+-.^_`|~";

	if (name.n == 0 || name.n > BRIDGE_HEADER_NAME_MAX)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i], l = lower(c);

		if (!(l >= 'a' && l <= 'z') && !(c >= '0' && c <= '9') &&
		    !memchr(more, c, sizeof(more) - 1))
			return false;
	}
	return true;
}

bool header_value_ok(struct view value)
{
	for (size_t i = 0; i < value.n; i++) {
		unsigned char c = (unsigned char)value.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

int header_name_compare(struct view name, const char *want)
{
	for (size_t i = 0; i < name.n; i++) {
		int d = lower((unsigned char)name.p[i]) - (unsigned char)want[i];

		if (d != 0 || want[i] == '\0')
			return d ? d : 1;
	}
	return want[name.n] == '\0' ? 0 : -1;
}

bool header_name_is(struct view name, const char *want)
{
	return header_name_compare(name, want) == 0;
}
