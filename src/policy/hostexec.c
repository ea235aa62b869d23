/* Door 1: host-executable data, flagged and never silently passed. The policy is in hostexec.h. */
#include "policy/hostexec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum match {
	AT,	/* a segment, or two that follow each other: the path itself or an ancestor */
	NAME,	/* the last segment */
	PREFIX, /* the last segment begins so */
	SUFFIX,
};

/* Within a flag in alphabetical order. Where a tool takes several spellings, PREFIX covers them. */
static const struct {
	unsigned flag;
	enum match match;
	const char *name;
} table[] = {
    {HOSTEXEC_SHELL, NAME, ".autoenv.zsh"},
    {HOSTEXEC_SHELL, NAME, ".env.leave"},
    {HOSTEXEC_SHELL, PREFIX, ".envrc"},
    {HOSTEXEC_SHELL, AT, ".direnv"},
    {HOSTEXEC_SHELL, AT, ".mise"},
    {HOSTEXEC_SHELL, PREFIX, ".mise."},
    {HOSTEXEC_SHELL, PREFIX, "mise."},
    {HOSTEXEC_SHELL, NAME, ".tool-versions"},
    {HOSTEXEC_GIT, NAME, ".gitattributes"},
    {HOSTEXEC_GIT, NAME, ".gitconfig"},
    {HOSTEXEC_GIT, NAME, ".gitmodules"},
    {HOSTEXEC_GIT, NAME,
     "HEAD"}, /* makes its directory a bare repository whose config runs commands */
    {HOSTEXEC_HOOKS, PREFIX, ".commitlintrc"},
    {HOSTEXEC_HOOKS, PREFIX, "commitlint.config."},
    {HOSTEXEC_HOOKS, AT, ".githooks"},
    {HOSTEXEC_HOOKS, AT, ".husky"},
    {HOSTEXEC_HOOKS, PREFIX, ".huskyrc"},
    {HOSTEXEC_HOOKS, AT, ".lefthook"},
    {HOSTEXEC_HOOKS, PREFIX, ".lefthook"},
    {HOSTEXEC_HOOKS, PREFIX, "lefthook."},
    {HOSTEXEC_HOOKS, PREFIX, "lefthook-local."},
    {HOSTEXEC_HOOKS, PREFIX, ".lintstagedrc"},
    {HOSTEXEC_HOOKS, PREFIX, "lint-staged.config."},
    {HOSTEXEC_HOOKS, NAME, ".overcommit.yml"},
    {HOSTEXEC_HOOKS, PREFIX, ".pre-commit-config."},
    {HOSTEXEC_HOOKS, NAME, ".pre-commit-hooks.yaml"},
    {HOSTEXEC_HOOKS, PREFIX, ".simple-git-hooks."},
    {HOSTEXEC_HOOKS, PREFIX, "simple-git-hooks."},
    {HOSTEXEC_EDITOR, SUFFIX, ".code-workspace"},
    {HOSTEXEC_EDITOR, AT, ".devcontainer"},
    {HOSTEXEC_EDITOR, NAME, ".devcontainer.json"},
    {HOSTEXEC_EDITOR, NAME, ".dir-locals.el"},
    {HOSTEXEC_EDITOR, NAME, ".dir-locals-2.el"},
    {HOSTEXEC_EDITOR, NAME, ".exrc"},
    {HOSTEXEC_EDITOR, AT, ".fleet"},
    {HOSTEXEC_EDITOR, AT, ".helix"},
    {HOSTEXEC_EDITOR, AT, ".idea"},
    {HOSTEXEC_EDITOR, NAME, ".lvimrc"},
    {HOSTEXEC_EDITOR, NAME, ".nvim.lua"},
    {HOSTEXEC_EDITOR, NAME, ".nvimrc"},
    {HOSTEXEC_EDITOR, SUFFIX, ".sublime-project"},
    {HOSTEXEC_EDITOR, AT, ".theia"},
    {HOSTEXEC_EDITOR, NAME, ".vimrc"},
    {HOSTEXEC_EDITOR, AT, ".vs"},
    {HOSTEXEC_EDITOR, AT, ".vscode"},
    {HOSTEXEC_EDITOR, AT, ".zed"},
    {HOSTEXEC_AGENT, PREFIX, "AGENTS."},
    {HOSTEXEC_AGENT, NAME, "AGENT.md"},
    {HOSTEXEC_AGENT, PREFIX, ".aider"},
    {HOSTEXEC_AGENT, PREFIX, "CLAUDE."},
    {HOSTEXEC_AGENT, AT, ".claude"},
    {HOSTEXEC_AGENT, AT, ".clinerules"},
    {HOSTEXEC_AGENT, AT, ".codex"},
    {HOSTEXEC_AGENT, AT, ".continue"},
    {HOSTEXEC_AGENT, PREFIX, "copilot-instructions."},
    {HOSTEXEC_AGENT, AT, ".cursor"},
    {HOSTEXEC_AGENT, NAME, ".cursorrules"},
    {HOSTEXEC_AGENT, PREFIX, "GEMINI."},
    {HOSTEXEC_AGENT, AT, ".gemini"},
    {HOSTEXEC_AGENT, AT, ".kiro"},
    {HOSTEXEC_AGENT, NAME, ".mcp.json"},
    {HOSTEXEC_AGENT, NAME, "mcp.json"},
    {HOSTEXEC_AGENT, AT, ".opencode"},
    {HOSTEXEC_AGENT, PREFIX, "opencode.json"},
    {HOSTEXEC_AGENT, AT, ".roo"},
    {HOSTEXEC_AGENT, PREFIX, ".windsurf"},
    {HOSTEXEC_CI, PREFIX, ".appveyor."},
    {HOSTEXEC_CI, PREFIX, "appveyor."},
    {HOSTEXEC_CI, PREFIX, "azure-pipelines."},
    {HOSTEXEC_CI, NAME, "bitbucket-pipelines.yml"},
    {HOSTEXEC_CI, AT, ".buildkite"},
    {HOSTEXEC_CI, AT, ".ci"},
    {HOSTEXEC_CI, AT, ".circleci"},
    {HOSTEXEC_CI, NAME, ".cirrus.yml"},
    {HOSTEXEC_CI, PREFIX, "cloudbuild."},
    {HOSTEXEC_CI, NAME, ".drone.yml"},
    {HOSTEXEC_CI, AT, ".forgejo/workflows"},
    {HOSTEXEC_CI, AT, ".gitea/workflows"},
    {HOSTEXEC_CI, AT, ".github/actions"},
    {HOSTEXEC_CI, AT, ".github/workflows"},
    {HOSTEXEC_CI, PREFIX, ".gitlab-ci."},
    {HOSTEXEC_CI, AT, ".gitlab"},
    {HOSTEXEC_CI, PREFIX, "Jenkinsfile"},
    {HOSTEXEC_CI, AT, ".teamcity"},
    {HOSTEXEC_CI, NAME, ".travis.yml"},
    {HOSTEXEC_CI, AT, ".woodpecker"},
    {HOSTEXEC_CI, PREFIX, ".woodpecker."},
    {HOSTEXEC_TOOL, NAME, ".bazelrc"},
    {HOSTEXEC_TOOL, AT, ".cargo"}, /* rustc-wrapper, runner, linker */
    {HOSTEXEC_TOOL, NAME, ".gdbinit"},
    {HOSTEXEC_TOOL, AT, "gradle/wrapper"},
    {HOSTEXEC_TOOL, NAME, ".lldbinit"},
    {HOSTEXEC_TOOL, AT, ".mvn"},
    {HOSTEXEC_TOOL, NAME, ".npmrc"}, /* node-options, script-shell, registry */
    {HOSTEXEC_TOOL, NAME, ".pnpmfile.cjs"},
    {HOSTEXEC_TOOL, AT, ".yarn"},
    {HOSTEXEC_TOOL, PREFIX, ".yarnrc"}, /* yarnPath is run by every yarn */
    {HOSTEXEC_TOOL, NAME, "sitecustomize.py"},
    {HOSTEXEC_TOOL, NAME, "usercustomize.py"},
};

/* name at a segment border of path, up to another border. */
static bool at_segments(const char *path, size_t n, const char *name, size_t k)
{
	for (size_t i = 0; i + k <= n; i++)
		if ((i == 0 || path[i - 1] == '/') && (i + k == n || path[i + k] == '/') &&
		    strncasecmp(path + i, name, k) == 0)
			return true;
	return false;
}

/* One bit a letter, however it is written; other bytes share theirs. */
static uint32_t letter_bit(char c)
{
	return UINT32_C(1) << ((unsigned char)c & 31);
}

/* The letters that segments of path begin with. Most names of the table are ruled out by their first. */
static uint32_t first_letters(const char *path, size_t n)
{
	uint32_t seen = n ? letter_bit(path[0]) : 0;

	for (size_t i = 1; i < n; i++)
		if (path[i - 1] == '/')
			seen |= letter_bit(path[i]);
	return seen;
}

static bool matches(const char *path, size_t n, size_t base, enum match match, const char *name)
{
	size_t k, len = n - base;

	if ((match == NAME || match == PREFIX) && len &&
	    letter_bit(path[base]) != letter_bit(name[0]))
		return false;
	k = strlen(name);
	switch (match) {
	case AT:
		return at_segments(path, n, name, k);
	case NAME:
		return len == k && strncasecmp(path + base, name, k) == 0;
	case PREFIX:
		return len >= k && strncasecmp(path + base, name, k) == 0;
	default:
		return len >= k && strncasecmp(path + n - k, name, k) == 0;
	}
}

unsigned hostexec_flags(const char *path, size_t n)
{
	uint32_t seen = first_letters(path, n);
	size_t base = n;
	unsigned flags = 0;

	while (base > 0 && path[base - 1] != '/')
		base--;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!(flags & table[i].flag) &&
		    (table[i].match != AT || seen & letter_bit(table[i].name[0])) &&
		    matches(path, n, base, table[i].match, table[i].name))
			flags |= table[i].flag;
	return flags;
}

const char *hostexec_name(enum hostexec_flag flag)
{
	static const char *const names[HOSTEXEC_FLAGS] = {"shell", "git", "hooks", "editor",
							  "agent", "ci",  "tool"};

	for (unsigned i = 0; i < HOSTEXEC_FLAGS; i++)
		if (flag == 1U << i)
			return names[i];
	return "";
}

const char *hostexec_names(unsigned flags, char *out, size_t n)
{
	size_t len = 0;

	if (n)
		out[0] = '\0';
	for (unsigned i = 0; i < HOSTEXEC_FLAGS; i++) {
		const char *name = hostexec_name((enum hostexec_flag)(1U << i));

		if (!(flags & 1U << i) || len + strlen(name) + 2 > n)
			continue;
		len += (size_t)snprintf(out + len, n - len, "%s%s", len ? "," : "", name);
	}
	return out;
}
