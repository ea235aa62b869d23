/*
 * hostexec.h: which member paths are host-executable data. Part of door 1.
 *
 * Such a file is ordinary to the file system and to git, but a program on the host runs it, or takes
 * orders from it, without being asked to by name: entering the directory (direnv), opening it (an
 * editor's tasks), committing (a hooks manager), starting an agent (its settings, its instructions),
 * pushing (CI). It is published, because changing it may be the work that was wanted, and flagged
 * in the report, so that a person looks before the next program does.
 *
 * Judged by path only, ignoring ASCII case, at any depth (each of these programs looks into parent
 * or sub directories in some setting). A directory or link of such a name is flagged itself, and
 * so is everything below it.
 *
 * Not flagged, on purpose: Makefile, package.json, build.rs, setup.py, CMakeLists.txt, scripts and other
 * files that run when a person asks for a build or a test by name. They are what agents are asked
 * to change all day; flagging them would bury the flags that matter. Their neighbours that run
 * or redirect a tool on any start of it are flagged (.npmrc, .yarnrc.yml, .cargo/config.toml, .mvn).
 * Not found: the same under a name that this list does not hold. What git would run from .git
 * is not flagged but refused (policy/member.h).
 */
#ifndef AIRLOCK_POLICY_HOSTEXEC_H
#define AIRLOCK_POLICY_HOSTEXEC_H

#include <stddef.h>

enum hostexec_flag {
	HOSTEXEC_SHELL = 1 << 0,  /* run on entering the directory: direnv, mise */
	HOSTEXEC_GIT = 1 << 1,	  /* git's own: attributes, modules, an embedded bare repository */
	HOSTEXEC_HOOKS = 1 << 2,  /* hooks managers */
	HOSTEXEC_EDITOR = 1 << 3, /* editors and IDEs, development containers */
	HOSTEXEC_AGENT = 1 << 4,  /* coding agents: settings, tool servers, instructions */
	HOSTEXEC_CI = 1 << 5,	  /* runs on the next push, with the project's credentials */
	HOSTEXEC_TOOL =
	    1 << 6, /* configuration that makes a package manager or debugger run code */
};
#define HOSTEXEC_FLAGS 7

/* The flags of a member path; 0: not host-executable data. */
unsigned hostexec_flags(const char *path, size_t n);
/* "shell", "git", ... of one flag, for the report. */
const char *hostexec_name(enum hostexec_flag flag);
/* Names of all flags, comma-separated, into out (64 bytes hold them all). Returns out. */
const char *hostexec_names(unsigned flags, char *out, size_t n);

#endif
