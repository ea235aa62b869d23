/* Unit tests of src/os/layer.c, and of the pure judgement in src/os/probe_userns.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "os/probe.h"

static void every_layer_and_cause_has_its_texts(void **state)
{
	(void)state;
	for (enum layer l = 0; l < LAYER_COUNT; l++) {
		const struct layer_info *i = layer_info(l);

		assert_non_null(i->id);
		assert_non_null(i->name);
		assert_non_null(i->gives);
		assert_int_equal(i->need == NEED_UNNAMED, i->without != NULL);
	}
	for (enum cause c = CAUSE_NONE + 1; c < CAUSE_COUNT; c++) {
		const struct cause_info *i = cause_info(c);

		assert_non_null(i->id);
		assert_true(strlen(i->why) > 10);
		assert_true(strlen(i->remedy) > 5);
		/* FR-B010: what is forbidden is never called "not installed". */
		assert_null(strstr(i->why, "not installed"));
		for (enum cause d = CAUSE_NONE; d < c; d++) {
			assert_string_not_equal(i->id, cause_info(d)->id);
			assert_string_not_equal(i->why, cause_info(d)->why);
		}
	}
}

static void texts_are_expanded(void **state)
{
	static const struct {
		const char *text, *object, *expect;
	} t[] = {
	    {"plain", "x", "plain"},
	    {"{}", "x", "x"},
	    {"a {} b {}", "x", "a x b x"},
	    {"a {}", NULL, "a "},
	    {"{ userns, }", "x", "{ userns, }"},
	    {"", "x", ""},
	    {"{}/airlock{,-launch}", "/usr/bin", "/usr/bin/airlock{,-launch}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64);

		assert_int_equal(cause_expand(&b, t[i].text, t[i].object), 0);
		assert_string_equal(buf_text(&b), t[i].expect);
	}
}

/* A row of facts is a healthy host and what differs from it. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define HEALTHY                                                                                   \
	.proc = true, .kernel = true, .mapped = true, .host_id_mapped = true, .setid_caps = true, \
	.max = 1000, .clone_sysctl = -1, .apparmor_sysctl = -1

/* FR-B010, FR-B024: what looks alike to a program has different causes, and each is named. */
static void refused_user_namespaces_are_told_apart(void **state)
{
	static const struct {
		struct userns_facts f;
		enum cause expect;
	} t[] = {
	    {{HEALTHY, .sys = EINVAL}, CAUSE_USERNS_KERNEL},
	    {{HEALTHY, .sys = ENOSYS}, CAUSE_USERNS_KERNEL},
	    {{HEALTHY, .sys = EPERM, .kernel = false}, CAUSE_USERNS_KERNEL},
	    {{HEALTHY, .sys = ENOSPC, .max = 0}, CAUSE_USERNS_MAX_ZERO},
	    {{HEALTHY, .sys = ENOSPC}, CAUSE_USERNS_LIMIT},
	    {{HEALTHY, .sys = EUSERS}, CAUSE_USERNS_LIMIT},
	    {{HEALTHY, .sys = ENOSPC, .max = -1}, CAUSE_USERNS_LIMIT},
	    {{HEALTHY, .sys = EPERM, .clone_sysctl = 0}, CAUSE_USERNS_CLONE_SYSCTL},
	    {{HEALTHY, .sys = EPERM, .clone_sysctl = 0, .privileged = true}, CAUSE_USERNS_REFUSED},
	    {{HEALTHY, .sys = EPERM, .clone_sysctl = 1, .chrooted = true}, CAUSE_USERNS_CHROOT},
	    {{HEALTHY, .sys = EPERM, .mapped = false}, CAUSE_USERNS_UNMAPPED},
	    {{HEALTHY, .sys = EPERM, .filtered = true, .chrooted = true}, CAUSE_SECCOMP_OUTER},
	    {{HEALTHY, .sys = ENOSYS, .filtered = true}, CAUSE_SECCOMP_OUTER},
	    {{HEALTHY, .sys = EACCES, .apparmor_sysctl = 1}, CAUSE_USERNS_APPARMOR},
	    {{HEALTHY, .sys = EACCES}, CAUSE_USERNS_LSM},
	    {{HEALTHY, .sys = EPERM, .lsm = true}, CAUSE_USERNS_LSM},
	    {{HEALTHY, .sys = EPERM}, CAUSE_USERNS_REFUSED},
	    {{HEALTHY, .sys = ENOMEM}, CAUSE_UNKNOWN},
	    /* Ubuntu 23.10 and later: created, mapped, and then without a capability. */
	    {{HEALTHY, .step = USERNS_USE, .sys = EPERM, .apparmor_sysctl = 1},
	     CAUSE_USERNS_APPARMOR},
	    {{HEALTHY, .step = USERNS_MAP, .sys = EPERM, .apparmor_sysctl = 1},
	     CAUSE_USERNS_APPARMOR},
	    {{HEALTHY, .step = USERNS_USE, .sys = EPERM, .apparmor_sysctl = 0},
	     CAUSE_CAPS_WITHHELD},
	    {{HEALTHY, .step = USERNS_USE, .sys = EPERM, .filtered = true}, CAUSE_SECCOMP_OUTER},
	    {{HEALTHY, .step = USERNS_MAP, .sys = EPERM, .host_id_mapped = false},
	     CAUSE_IDMAP_RANGE},
	    {{HEALTHY, .step = USERNS_MAP, .sys = EPERM, .setid_caps = false}, CAUSE_IDMAP_CAPS},
	    {{HEALTHY, .step = USERNS_MAP, .sys = EACCES}, CAUSE_CAPS_WITHHELD},
	    {{HEALTHY, .step = USERNS_MAP, .sys = ENOENT, .proc = false}, CAUSE_PROC_ABSENT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		enum cause got = userns_cause(&t[i].f);

		if (got != t[i].expect)
			fail_msg("row %zu: %s instead of %s", i, cause_info(got)->id,
				 cause_info(t[i].expect)->id);
	}
}

/* A layer that is missing stops a run only if the run insists on it. */
static void only_missing_layers_that_a_run_insists_on_stop_it(void **state)
{
	static const struct {
		enum layer layer;
		enum probe_state state;
		bool allows;
	} t[] = {
	    {LAYER_USERNS, PROBE_IN_FORCE, true},  {LAYER_USERNS, PROBE_LIMITED, true},
	    {LAYER_USERNS, PROBE_SKIPPED, true},   {LAYER_USERNS, PROBE_MISSING, false},
	    {LAYER_OVERLAY, PROBE_MISSING, false}, {LAYER_SECCOMP, PROBE_MISSING, false},
	    {LAYER_GIT, PROBE_MISSING, true},	   {LAYER_CGROUP, PROBE_MISSING, true},
	    {LAYER_HELPERS, PROBE_MISSING, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct probe_result r = {.layer = t[i].layer, .state = t[i].state};

		assert_int_equal(probe_allows_run(&r), t[i].allows);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_layer_and_cause_has_its_texts),
	    cmocka_unit_test(texts_are_expanded),
	    cmocka_unit_test(refused_user_namespaces_are_told_apart),
	    cmocka_unit_test(only_missing_layers_that_a_run_insists_on_stop_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
