/* Door 1: the rules of the tar reader in words. The names are part of reports: append only. */
#include <string.h>

#include "wire/tar_internal.h"

const char tar_nomem[] = "nomem";

static const struct {
	const char *rule, *text;
} rules[] = {
    {"not_tar",
     "the stream does not begin with a tar header (compressed streams are not accepted)"},
    {"truncated", "the stream ends before the two zero blocks that end every tar archive"},
    {"bad_checksum", "the checksum of a header does not match"},
    {"bad_magic", "a header is neither v7 nor ustar nor GNU"},
    {"bad_number", "a number field holds something else than octal digits or a base-256 number"},
    {"bad_type", "a member type that is not accepted (multi-volume, dump directory, vendor types)"},
    {"format_mix", "an extension header of one tar dialect in a header of another"},
    {"extension_order", "extension headers that repeat, mix dialects or belong to no member"},
    {"lone_zero_block", "a single zero block between members"},
    {"bad_pax", "a PAX record with a wrong length, without '=' or with a bad value"},
    {"global_override", "a global PAX header that names, sizes or marks members"},
    {"bad_op", "an AIRLOCK record with an unknown key or value, or on the wrong kind of member"},
    {"bad_sparse",
     "a sparse map that is out of order, overlaps, leaves the file or does not add up"},
    {"hidden_data", "a link, directory or special member with data behind it"},
    {"trailing_slash", "a name that ends with '/' on something that is not a directory"},
    {"root_not_dir", "the root of the workspace given as something that is not a directory"},
    {"empty_name", "a member without a name"},
    {"nul_in_name", "a NUL byte inside a name or link target"},
    {"absolute", "an absolute member name"},
    {"dotdot", "a '..' segment in a member name"},
    {"name_too_long", "a member name over 4096 bytes or a segment over 255"},
    {"empty_target", "a link without a target"},
    {"target_too_long", "a link target over 4095 bytes"},
    {"hardlink_target", "a hard link to an absolute path, through '..' or to the root"},
    {"limit", "a limit was passed: depth 128, members, bytes of one member or of the stream, "
	      "1 MiB of headers before a member or too many in all, a million sparse extents"},
};

const char *tar_rule_text(const char *rule)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (strcmp(rules[i].rule, rule) == 0)
			return rules[i].text;
	return "a boundary rule is broken";
}
