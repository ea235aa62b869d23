/* provider/ssh: words that name a machine (K1), ssh's command line (FR-B197), the script's lines among noise (K6). */
#include "provider/ssh/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "provider/ssh/script.h"

#include <cmocka.h>

static const struct {
	const char *word, *user, *host, *path; /* host NULL: refused */
	uint16_t port;
} words[] = {
    {"h:/d", NULL, "h", "/d", 0},
    {"u@h.example:2222:/d/e f", "u", "h.example", "/d/e f", 2222},
    {"u@[::1]:22:/d", "u", "::1", "/d", 22},
    {"[fe80::1%eth0]:/d", NULL, "fe80::1%eth0", "/d", 0},
    {"h:/d:/e", NULL, "h", "/d:/e", 0},
    {"-oProxyCommand=x:/d", NULL, NULL, NULL, 0},
    {"-l@h:/d", NULL, NULL, NULL, 0},
    {"u@-h:/d", NULL, NULL, NULL, 0},
    {"u@@h:/d", NULL, NULL, NULL, 0},
    {"u x@h:/d", NULL, NULL, NULL, 0},
    {"h\n:/d", NULL, NULL, NULL, 0},
    {"h:0:/d", NULL, NULL, NULL, 0},
    {"h:65536:/d", NULL, NULL, NULL, 0},
    {"h:22x:/d", NULL, NULL, NULL, 0},
    {"h:/", NULL, NULL, NULL, 0},
    {"h:/a/../b", NULL, NULL, NULL, 0},
    {"h:/a/", NULL, NULL, NULL, 0},
    {"h:rel", NULL, NULL, NULL, 0},
    {"h", NULL, NULL, NULL, 0},
    {":/d", NULL, NULL, NULL, 0},
    {"[::1:/d", NULL, NULL, NULL, 0},
    {"", NULL, NULL, NULL, 0},
};

static void words_are_judged_K1(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		char *v[] = {(char *)(uintptr_t)words[i].word, NULL};
		struct ssh_target t;
		struct err e = ERR_INIT;
		int r = ssh_target_parse(v, &t, &e);

		if ((r == 0) != (words[i].host != NULL))
			fail_msg("%s: %d %s", words[i].word, r, e.text);
		if (r < 0)
			continue;
		assert_true(str_eq(t.user, words[i].user));
		assert_string_equal(t.host, words[i].host);
		assert_string_equal(t.path, words[i].path);
		assert_int_equal(t.port, words[i].port);
		ssh_target_done(&t);
	}
}

static void further_words_are_judged(void **state)
{
	static const char *const bad[] = {"key=rel", "key=/a\"b", "config=/a%h",
					  "jump=-x", "jump=a b",  "jump=a,-oX=y",
					  "jump=a,", "jump=a;id", "other=/x",
					  ""};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char *v[] = {(char *)(uintptr_t) "h:/d", (char *)(uintptr_t)bad[i], NULL};
		struct ssh_target t;

		if (ssh_target_parse(v, &t, NULL) == 0)
			fail_msg("%s was taken", bad[i]);
	}
}

static size_t at(char *const *v, const char *word)
{
	size_t i = 0;

	while (v[i] && strcmp(v[i], word) != 0)
		i++;
	return i;
}

static void ours_come_first_and_the_host_behind_the_end_of_options_FR_B197(void **state)
{
	char *v[] = {(char *)(uintptr_t) "u@h:22:/d", (char *)(uintptr_t) "key=/k y",
		     (char *)(uintptr_t) "known-hosts=/n", NULL};
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_strv_ char **argv = NULL;
	size_t n, end;

	(void)state;
	assert_int_equal(ssh_target_parse(v, &t, NULL), 0);
	assert_int_equal(ssh_target_argv(&t, "/s/k", "CMD", &argv, NULL), 0);
	n = strv_len(argv);
	end = at(argv, "--");
	assert_int_equal(end, n - 3);
	assert_string_equal(argv[n - 2], "h");
	assert_string_equal(argv[n - 1], "CMD");
	assert_true(at(argv, "-oBatchMode=yes") < end);
	assert_true(at(argv, "-oStrictHostKeyChecking=yes") < end);
	assert_true(at(argv, "-oIdentitiesOnly=yes") < end);
	assert_true(at(argv, "-oIdentityFile=\"/k y\"") < end);
	assert_true(at(argv, "-oUserKnownHostsFile=\"/n\"") < end);
	assert_true(at(argv, "-oControlPath=\"/s/k\"") < end);
	assert_true(at(argv, "-oForwardAgent=no") < end);
	assert_true(at(argv, "-oGSSAPIDelegateCredentials=no") < end);
}

/* What ssh hands to a shell, its own tokens filled in. */
static void jump_hosts_get_our_options_and_no_shell_reads_a_word(void **state)
{
	char *v[] = {(char *)(uintptr_t) "h:/d", (char *)(uintptr_t) "key=/it's $(k)",
		     (char *)(uintptr_t) "jump=u@a:22,[fe80::1%eth0]:2200", NULL};
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_strv_ char **argv = NULL;
	const char *jump, *inner;
	size_t i = 0;

	(void)state;
	assert_int_equal(ssh_target_parse(v, &t, NULL), 0);
	assert_int_equal(ssh_target_argv(&t, NULL, "CMD", &argv, NULL), 0);
	while (argv[i] && !str_starts(argv[i], "-oProxyCommand="))
		i++;
	assert_true(i < at(argv, "--"));
	jump = argv[i];
	assert_non_null(strstr(jump, "'-oBatchMode=yes' "));
	assert_non_null(strstr(jump, "'-oStrictHostKeyChecking=yes' "));
	assert_non_null(strstr(jump, "'-oIdentityFile=\"/it'\\''s $(k)\"' "));
	/* The hop nearest to the target is the outermost; what ssh expands there is kept for the next one. */
	assert_non_null(strstr(jump, "'-oPort=2200' -W '[%h]:%p' -- 'fe80::1%%eth0'"));
	inner = strstr(jump, "'-oProxyCommand=");
	assert_non_null(inner);
	assert_non_null(strstr(inner, "-W '\\''[%%h]:%%p'\\'' -- '\\''a'\\'''"));
	assert_true(inner < strstr(jump, "'-oPort=2200'"));
}

static void the_script_suits_every_shell(void **state)
{
	const char *c = script_command();

	(void)state;
	assert_true(str_starts(c, "exec /bin/sh -c '"));
	/* Nothing that fish or csh read inside single quotes, and one line. */
	assert_null(strpbrk(c, "\\!\n"));
	assert_ptr_equal(strchr(strchr(c, '\'') + 1, '\''), c + strlen(c) - 1);
}

static const struct {
	const char *text;
	enum script_word word;
	size_t used;
	const char *detail;
} lines[] = {
    {"", SCRIPT_NOTHING, 0, NULL},
    {"airlock 0123 have", SCRIPT_NOTHING, 0, NULL},
    {"airlock 0123 have\n", SCRIPT_HAVE, 18, NULL},
    {"noise\nairlock 0123 need\nrest", SCRIPT_NEED, 24, NULL},
    {"airlock 9999 have\nairlock 0123 ready\n", SCRIPT_READY, 37, NULL},
    {"x airlock 0123 have\n", SCRIPT_NOTHING, 20, NULL},
    {"airlock 0123 other\npart", SCRIPT_NOTHING, 19, NULL},
    {"airlock 0123 fail noexec /g\n", SCRIPT_FAIL, 28, "noexec /g"},
};

static void lines_are_found_among_noise_K6(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct view detail = {0};
		size_t used = 0;

		assert_int_equal(script_find(lines[i].text, strlen(lines[i].text), "0123", &used,
					     &detail),
				 lines[i].word);
		assert_int_equal(used, lines[i].used);
		if (lines[i].detail)
			assert_memory_equal(detail.p, lines[i].detail, detail.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(words_are_judged_K1),
	    cmocka_unit_test(further_words_are_judged),
	    cmocka_unit_test(ours_come_first_and_the_host_behind_the_end_of_options_FR_B197),
	    cmocka_unit_test(jump_hosts_get_our_options_and_no_shell_reads_a_word),
	    cmocka_unit_test(the_script_suits_every_shell),
	    cmocka_unit_test(lines_are_found_among_noise_K6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
