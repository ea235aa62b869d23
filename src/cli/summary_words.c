#include "cli/summary_internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/summary.h"

struct word {
	const char *token, *words;
};

/* Stable rule words of door 1 in plain words, with what to do. Unknown ones are shown as they are. */
static const struct word rules[] = {
    /* refused */
    {"link_escape", "a link that points outside the workspace; make it relative and inside"},
    {"link_hops", "a link through too many other links"},
    {"limit", "a link that takes too many steps to follow"},
    {"through_link", "lies behind a link; what a link leads to is not written"},
    {"git_metadata", "git's own files, hooks and configuration never come back"},
    {"special_file", "devices, FIFOs and sockets never come back"},
    {"hardlink_refused", "a hard link to a file that was refused"},
    {"hardlink_target", "a hard link to a file that did not come back"},
    {"reserved_name", "a name that Airlock or the system reserves; rename it"},
    {"case_collision", "differs from another name only in case, which is one file here; rename it"},
    {"name_too_long", "the name is too long; shorten it"},
    {"target_too_long", "the link's target is too long"},
    {"no_links", "the file system here has no symbolic links, and hard links come that way"},
    {"unreadable", "could not be read in the sandbox, or changed each time; here it is as it was"},
    {"too_large", "the file is too large"},
    /* conflicts */
    {"both_added", "added here and in the sandbox"},
    {"both_changed", "changed here and in the sandbox"},
    {"mode_both_changed", "permissions were changed here and in the sandbox; yours stand"},
    {"deleted_in_sandbox", "deleted in the sandbox, but changed here"},
    {"type_changed", "became another kind of file on one side, changed on the other"},
    {"host_special", "is a device, FIFO or socket here"},
    {"changed_meanwhile", "was changed here while the results came back"},
    {"dir_has_changes", "became a file in the sandbox, but the directory here has changes"},
    {"parent_link", "a directory above it is a link here; nothing is written through links"},
    {"parent_not_dir", "what should be a directory above it is a file here"},
    /* failures */
    {"permission_denied", "you may not write it here"},
    {"other_filesystem", "lies on another file system than the workspace"},
    {"not_supported", "the file system here cannot keep that"},
    {"no_space", "the disk or the quota is full"},
    {"busy", "is in use here"},
    {"io_error", "the system reported an error"},
    {"no_run_directory", "the directory of its run is not known here"},
    {"foreign_journal",
     "a journal that was not written by this Airlock here: left alone, nothing of it was done"},
    {"foreign_tree", "what is staged there is not what was staged: left where it is"},
    {"base_missing", "the copy that was sent in is damaged"},
    {"dir", "directory"},
};

static const struct word reasons[] = {
    {"secret", "looks like a credential; send it with --include"},
    {"unreadable", "cannot be read by you"},
    {"socket", "is a socket"},
    {"fifo", "is a FIFO"},
    {"device", "is a device"},
    {"too_long", "has a name or a path that is too long: at most 255 and 4095 bytes"},
    {"too_deep",
     "lies deeper than 127 directories; nothing below it was sent: move it up, or leave it out with --exclude"},
    {"changed", "kept changing while it was read"},
    {"vanished", "went away while it was read"},
    {"mount", "is another file system mounted here"},
    {"submodule_git", "is a submodule's git directory; its files were sent"},
    {"git_pointer",
     "points to a repository that does not point back; files were sent, history was not"},
    {"git_missing", "git is not installed; files were sent, history was not"},
    {"git_failed", "git could not read the repository; files were sent, history was not"},
    {"git_timeout", "git took too long; files were sent, history was not"},
    {"no_match", "matches nothing"},
};

static const char *plain(const struct word *w, size_t n, const char *token)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(w[i].token, token) == 0)
			return w[i].words;
	return token;
}

const char *summary_rule(const char *token)
{
	return plain(rules, ARRAY_LEN(rules), token);
}

const char *summary_reason(const char *token)
{
	return plain(reasons, ARRAY_LEN(reasons), token);
}
void summary_say_path(const char *before, const char *path, const char *after)
{
	struct buf b = BUF_INIT((size_t)1 << 20);

	(void)str_printable(&b, path, strlen(path));
	if (after && *after)
		cli_say("  %s%s: %s", before, buf_text(&b), after);
	else
		cli_say("  %s%s", before, buf_text(&b));
	buf_done(&b);
}
