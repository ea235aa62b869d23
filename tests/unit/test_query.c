/* Unit tests of src/policy/query.c: S2-03, a denied parameter is found in every spelling that a server reads as it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "policy/bridge_policy.h"
#include "policy/query.h"

static const char *ask(struct bridge_policy *p, const char *q)
{
	return query_denied(&p->query_denied, (struct view){q, strlen(q)});
}

static void spellings_of_a_denied_name(void **state)
{
	static const char *const denied[] = {
	    "key",
	    "key=x",
	    "key=",
	    "a=1&key=x",
	    "a=1;key=x",
	    ";key=x",
	    "&&key=x",
	    "KEY=x",
	    "Key=x",
	    "k%65y=x",
	    "%6b%65%79=x",
	    "%4Bey=x",
	    "+key=x",
	    "key+=x",
	    "%20key=x",
	    "key%20=x",
	    "key%09=x",
	    "key[]=x",
	    "key[0]=x",
	    "key%5B%5D=x",
	    "key[",
	    "_key=x",
	    "k-e-y=x",
	    "k%2dey=x",
	    "key%00=x",
	    "api_key=x",
	    "apikey=x",
	    "apiKey=x",
	    "api-key=x",
	    "access_token=x",
	    "accessToken=x",
	    "Access-Token=x",
	    "access%5ftoken=x",
	    "oauth_token=x",
	    "oauth_signature=x",
	    "bearer_token=x",
	    "quotaUser=x",
	    "quota_user=x",
	    "userProject=x",
	    "$userProject=x",
	    "$httpHeaders=x-goog-api-key:y",
	    "$.xgafv=1",
	    "%24alt=x",
	    "$=x",
	    "+$k=x",
	    "access.token=x",
	    "access[token=x",
	    "access%5Btoken=x",
	    "alt=sse&access_token",
	    "uploadType=media",
	    "callback=f",
	};
	static const char *const passes[] = {
	    "",		 "alt=sse",   "pageSize=10&pageToken=key",
	    "a=key",	 "a=%26key",  "a%26key=x",
	    "a%3Bkey=x", "keys=x",    "keyx",
	    "akey=x",	 "k%2565y=x", "%3Dkey=x",
	    "a=$x",	 "k",	      "ke",
	    "=key",	 "?key=x",    "fields=models(name)",
	};
	struct bridge_policy *p = NULL;

	(void)state;
	assert_int_equal(bridge_policy_builtin("google", &p, NULL), 0);
	for (size_t i = 0; i < sizeof(denied) / sizeof(*denied); i++)
		if (!ask(p, denied[i]))
			fail_msg("passes: %s", denied[i]);
	for (size_t i = 0; i < sizeof(passes) / sizeof(*passes); i++)
		if (ask(p, passes[i]))
			fail_msg("denied: %s by %s", passes[i], ask(p, passes[i]));
	assert_string_equal(ask(p, "alt=sse&accessToken=x"), "access_token");
	bridge_policy_unref(p);
	/* Those whose API takes none from the query deny none. */
	assert_int_equal(bridge_policy_builtin("anthropic", &p, NULL), 0);
	assert_null(ask(p, "beta=true&key=x"));
	bridge_policy_unref(p);
}

static void a_long_name_is_compared_by_its_beginning(void **state)
{
	char long_name[3 * NAME_MAX_LEN + 1];
	struct bridge_policy *p = NULL;

	(void)state;
	memset(long_name, 'x', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(bridge_policy_builtin("google", &p, NULL), 0);
	assert_null(ask(p, long_name));
	memcpy(long_name, "key", 3);
	assert_null(ask(p, long_name));
	long_name[0] = '$';
	assert_string_equal(ask(p, long_name), "$*");
	/* Whatever does not count may be as long as it likes. */
	memset(long_name, '_', sizeof(long_name) - 1);
	memcpy(long_name + sizeof(long_name) - 4, "key", 3);
	assert_string_equal(ask(p, long_name), "key");
	bridge_policy_unref(p);
}

static void names_of_the_list(void **state)
{
	static const char *const good[] = {"key", "$*", "$.xgafv", "a_b-c~1", "X*"};
	static const char *const bad[] = {"",	  "*", "a*b", "a**", "a b",	"a[]",
					  "a%41", "_", "-*",  "a=b", "\xc3\xa9"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (!query_name_ok(good[i]))
			fail_msg("%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (query_name_ok(bad[i]))
			fail_msg("%s", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(spellings_of_a_denied_name),
	    cmocka_unit_test(a_long_name_is_compared_by_its_beginning),
	    cmocka_unit_test(names_of_the_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
