/* Unit tests of src/policy/hostexec.c: S1-05, F1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/hostexec.h"

/* S1-05: what a program on the host would run unasked is flagged, wherever it lies. */
static void s1_05_host_executable_paths_are_flagged(void **state)
{
	static const struct {
		const char *path;
		unsigned flags;
	} t[] = {
	    {".envrc", HOSTEXEC_SHELL},
	    {"sub/.ENVRC", HOSTEXEC_SHELL},
	    {".envrc.local", HOSTEXEC_SHELL},
	    {"mise.toml", HOSTEXEC_SHELL},
	    {".gitattributes", HOSTEXEC_GIT},
	    {"a/.gitmodules", HOSTEXEC_GIT},
	    {"fixtures/bare/HEAD", HOSTEXEC_GIT},
	    {".husky", HOSTEXEC_HOOKS}, /* itself: it may be a link */
	    {".husky/pre-commit", HOSTEXEC_HOOKS},
	    {"pkg/.husky/_/x", HOSTEXEC_HOOKS},
	    {"lefthook.yml", HOSTEXEC_HOOKS},
	    {".pre-commit-config.yaml", HOSTEXEC_HOOKS},
	    {".vscode/tasks.json", HOSTEXEC_EDITOR},
	    {".idea/workspace.xml", HOSTEXEC_EDITOR},
	    {"team.code-workspace", HOSTEXEC_EDITOR},
	    {".devcontainer/devcontainer.json", HOSTEXEC_EDITOR},
	    {".claude/settings.json", HOSTEXEC_AGENT},
	    {".mcp.json", HOSTEXEC_AGENT},
	    {"CLAUDE.md", HOSTEXEC_AGENT},
	    {"src/AGENTS.md", HOSTEXEC_AGENT},
	    {".cursor/rules/x.mdc", HOSTEXEC_AGENT},
	    {".github/workflows/ci.yml", HOSTEXEC_CI},
	    {".github/copilot-instructions.md", HOSTEXEC_AGENT},
	    {".gitlab-ci.yml", HOSTEXEC_CI},
	    {"Jenkinsfile", HOSTEXEC_CI},
	    {".npmrc", HOSTEXEC_TOOL},
	    {".cargo/config.toml", HOSTEXEC_TOOL},
	    {".yarnrc.yml", HOSTEXEC_TOOL},
	    {".vscode/mcp.json", HOSTEXEC_EDITOR | HOSTEXEC_AGENT},
	    /* ordinary work */
	    {"Makefile", 0},
	    {"package.json", 0},
	    {"build.rs", 0},
	    {"src/main.c", 0},
	    {"README.md", 0},
	    {".gitignore", 0},
	    {".github/ISSUE_TEMPLATE.md", 0},
	    {"github/workflows/x", 0},
	    {"x.husky/y", 0},
	    {".huskyx/y", 0},
	    {"docs/envrc", 0},
	    {"HEAD.md", 0},
	    {"", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		unsigned got = hostexec_flags(t[i].path, strlen(t[i].path));

		if (got != t[i].flags)
			fail_msg("%s: %#x instead of %#x", t[i].path, got, t[i].flags);
	}
}

static void flags_have_names(void **state)
{
	char out[64], small[8];

	(void)state;
	assert_string_equal(hostexec_names(0, out, sizeof(out)), "");
	assert_string_equal(hostexec_names(HOSTEXEC_GIT | HOSTEXEC_TOOL, out, sizeof(out)),
			    "git,tool");
	assert_string_equal(hostexec_names((1U << HOSTEXEC_FLAGS) - 1, out, sizeof(out)),
			    "shell,git,hooks,editor,agent,ci,tool");
	assert_true(strlen(hostexec_names(~0U, small, sizeof(small))) < sizeof(small));
	assert_string_equal(hostexec_name(HOSTEXEC_CI), "ci");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(s1_05_host_executable_paths_are_flagged),
	    cmocka_unit_test(flags_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
