/* Unit tests of src/policy/secret.c (FR-B026, H2: what looks like a credential is held back). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "policy/secret.h"

static void names_that_look_like_credentials_FR_B026(void **state)
{
	static const struct {
		const char *name;
		bool dir, want;
	} t[] = {
	    {".env", false, true},
	    {".ENV", false, true},
	    {".env.local", false, true},
	    {".env.production", false, true},
	    {"prod.env", false, true},
	    {".env.example", false, false},
	    {".env.sample", false, false},
	    {".env.template", false, false},
	    {".envrc", false, false},
	    {"environment", false, false},
	    {"server.key", false, true},
	    {"tls.PEM", false, true},
	    {"id_rsa", false, true},
	    {"id_rsa.pub", false, false},
	    {"id_ed25519", false, true},
	    {".npmrc", false, true},
	    {".netrc", false, true},
	    {"credentials.json", false, true},
	    {"credentials.ts", false, false},
	    {"service-account-prod.json", false, true},
	    {"vault.kdbx", false, true},
	    {"terraform.tfstate", false, true},
	    {"terraform.tfstate.backup", false, true},
	    {"terraform.tfstate.1700000000.backup", false, true},
	    {"id_rsa.bak", false, true},
	    {"server.key~", false, true},
	    {".env.OLD", false, true},
	    {"notes.backup", false, false},
	    {".backup", false, false},
	    {"1.backup", false, false},
	    {"~", false, false},
	    {"keyboard.c", false, false},
	    {"monkey", false, false},
	    {".aws", true, true},
	    {".ssh", true, true},
	    {".gnupg", true, true},
	    {".aws", false, false},
	    {".env", true, false},
	    {"src", true, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		if (secret_looking(t[i].name, strlen(t[i].name), t[i].dir) != t[i].want)
			fail_msg("%s", t[i].name);
}

static void heavy_names_FR_B008(void **state)
{
	(void)state;
	assert_true(secret_heavy_dir("node_modules", 12));
	assert_true(secret_heavy_dir(".venv", 5));
	assert_false(secret_heavy_dir("target", 6));
	assert_false(secret_heavy_dir("node_module", 11));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(names_that_look_like_credentials_FR_B026),
	    cmocka_unit_test(heavy_names_FR_B008),
	};

	return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
