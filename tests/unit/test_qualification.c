/* PR-03, PR-07, PR-08: when a recorded measurement speaks for an environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/qualification.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define TARGET "sha256:0" D
#define OTHER "sha256:1" D

static const struct qualification_bound good = {"c",	"e",	  "sandbox", "native",
						TARGET, "config", "secrets", ""};

static struct qualification_now now_of(void)
{
	return (struct qualification_now){.bound = good, .company_allowed = true};
}

static void pr_03_every_bound_value_counts(void **state)
{
	static const enum qualification want[] = {UNQUALIFIED_COMPANY, UNQUALIFIED_CONFIG,
						  UNQUALIFIED_CONFIG,  UNQUALIFIED_CONFIG,
						  UNQUALIFIED_CONFIG,  UNQUALIFIED_CONFIG,
						  UNQUALIFIED_ACCOUNT, UNQUALIFIED_IMAGE};
	struct qualification_now now = now_of();

	(void)state;
	assert_int_equal(qualification_judge(&now, &good, true), QUALIFIED);
	assert_int_equal(qualification_judge(&now, &good, false), UNQUALIFIED_CLEANUP);
	assert_int_equal(qualification_judge(&now, NULL, true), UNQUALIFIED_NEVER);
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		struct qualification_bound was = good;
		const char **v[] = {&was.company,  &was.environment, &was.driver,
				    &was.provider, &was.target,	     &was.config,
				    &was.secrets,  &was.custom_image};

		*v[i] = i == 4 ? OTHER : "other";
		assert_int_equal(qualification_judge(&now, &was, true), want[i]);
		/* Half a record is none. */
		*v[i] = NULL;
		assert_int_equal(qualification_judge(&now, &was, true), want[i]);
	}
}

static void pr_08_what_can_change_never_qualifies(void **state)
{
	static const char *const targets[] = {
	    "", "debian:12", "sha256:", "sha256:0" D "0", "sha512:0" D, "SHA256:0" D, "sha256:X" D};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		struct qualification_now now = now_of();
		struct qualification_bound was = good;

		now.bound.target = was.target = targets[i];
		assert_int_equal(qualification_judge(&now, &was, true), UNQUALIFIED_MUTABLE);
	}
}

static void pr_07_the_platform_only_where_it_may(void **state)
{
	struct qualification_now now = now_of();

	(void)state;
	now.platform_covers = true;
	now.bound.target = "";
	assert_int_equal(qualification_judge(&now, NULL, false), QUALIFIED_BY_PLATFORM);
	/* A captured image needs a record of its own. */
	now.bound.custom_image = "captured";
	now.bound.target = TARGET;
	assert_int_equal(qualification_judge(&now, NULL, false), UNQUALIFIED_NEVER);
	now.bound.custom_image = "";
	now.archived = true;
	assert_int_equal(qualification_judge(&now, &good, true), UNQUALIFIED_ARCHIVED);
	/* The company comes first, whoever selected the image. */
	now.company_allowed = false;
	assert_int_equal(qualification_judge(&now, &good, true), UNQUALIFIED_COMPANY);
}

static void words(void **state)
{
	(void)state;
	for (int i = 0; i < QUALIFICATION_COUNT; i++)
		assert_true(strlen(qualification_word((enum qualification)i)) > 4);
	assert_string_equal(qualification_word(QUALIFIED_BY_PLATFORM), "qualified");
	assert_string_equal(qualification_word(UNQUALIFIED_ACCOUNT), "account_changed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pr_03_every_bound_value_counts),
	    cmocka_unit_test(pr_08_what_can_change_never_qualifies),
	    cmocka_unit_test(pr_07_the_platform_only_where_it_may),
	    cmocka_unit_test(words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
