/* accessresults.c: what the verification tests wrote about a build; access.h says what that is worth. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/access.h"
#include "api/jsonfile.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "wire/jsonmember.h"

static const char *const states[ACCESS_STATE_COUNT] = {
    [ACCESS_CURRENT] = "current",
    [ACCESS_ABSENT] = "absent",
    [ACCESS_OTHER_BUILD] = "other_build",
    [ACCESS_DAMAGED] = "damaged",
};

const char *access_state_word(enum access_state s)
{
	return states[s];
}

/* SHA-256 of the canonical form of everything but the digest itself. */
static bool is_whole(json_t *j)
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	char hex[2 * sizeof(sum) + 1];
	_cleanup_free_ char *text = NULL, *said = strdup(json_member_text(j, "digest"));

	(void)json_object_del(j, "digest");
	text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text || !said)
		return false;
	(void)crypto_hash_sha256(sum, (const unsigned char *)text, strlen(text));
	(void)sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
	return strcmp(hex, said) == 0;
}

enum access_state access_results_read(const char *path, const char *build, json_t **ret)
{
	enum access_state s = ACCESS_DAMAGED;
	json_t *j;

	*ret = NULL;
	if (!path || access(path, F_OK) < 0)
		return ACCESS_ABSENT;
	j = jsonfile_read(path, ACCESS_RESULTS_MAX);
	if (j && is_whole(j))
		s = build[0] && strcmp(json_member_text(j, "build"), build) == 0
			? ACCESS_CURRENT
			: ACCESS_OTHER_BUILD;
	if (s == ACCESS_CURRENT)
		*ret = json_incref(j);
	json_decref(j);
	return s;
}

/* failed beats passed, passed beats not-run: a test that was skipped says nothing against one that was not. */
static const char *worse(const char *a, const char *b)
{
	if (strcmp(a, "failed") == 0 || strcmp(b, "failed") == 0)
		return "failed";
	return strcmp(a, "passed") == 0 || strcmp(b, "passed") == 0 ? "passed" : "not-run";
}

static const char *outcome(const json_t *one)
{
	const char *t = json_member_text(one, "outcome");

	return strcmp(t, "passed") == 0	   ? "passed"
	       : strcmp(t, "skipped") == 0 ? "not-run"
					   : "failed";
}

const char *access_check(const json_t *results, const char *id, json_t **ret_tests)
{
	const char *all = "not-run";
	json_t *one;
	size_t i;

	*ret_tests = json_array();
	json_array_foreach(json_object_get(results, "checks"), i, one)
	{
		if (strcmp(json_member_text(one, "id"), id) != 0)
			continue;
		all = worse(all, outcome(one));
		(void)json_array_append_new(*ret_tests, json_pack("{s:s,s:s}", "test",
								  json_member_text(one, "test"),
								  "outcome", outcome(one)));
	}
	return all;
}

const char *access_denial(const json_t *results, const char *operation, const char *actor)
{
	const char *all = "not-run";
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(results, "denials"), i, one)
	{
		if (strcmp(json_member_text(one, "operation"), operation) == 0 &&
		    strcmp(json_member_text(one, "actor"), actor) == 0)
			all = worse(all, outcome(one));
	}
	return all;
}
