/*
 * Attacks that only the stream as a whole, or the host, shows: sections A, B, C, D and F of the specification.
 *
 * The host that they assume (hostile_host; mkhostile --host makes it):
 *   hostabs -> /etc            hostup -> ../outside      hostin -> real
 *   loop1 -> loop2             loop2 -> loop1
 *   .airlock-x -> /etc
 *   baseabs -> /opt/tool       the same in the baseline, so it came from the host
 *   basein -> real             likewise
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cases.h"
#include "mk.h"

const struct hostile_link hostile_host[] = {
    {"hostabs", "/etc", false},	   {"hostup", "../outside", false}, {"hostin", "real", false},
    {"loop1", "loop2", false},	   {"loop2", "loop1", false},	    {"baseabs", "/opt/tool", true},
    {".airlock-x", "/etc", false}, {"basein", "real", true},
};
const size_t hostile_host_len = ARRAY_LEN(hostile_host);

/* A stream in shorthand: "kind name [target]"; d f l h (kinds), c b p (special), D U O (delete, unreadable, opaque). */
static void script(struct buf *b, const char *const (*lines)[3], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *name = lines[i][1], *target = lines[i][2];

		switch (lines[i][0][0]) {
		case 'd':
			mk_dir(b, name);
			break;
		case 'f':
			mk_file(b, name, target ? target : "bad\n");
			break;
		case 'l':
			mk_link(b, name, target);
			break;
		case 'h':
			mk_hard(b, name, target);
			break;
		case 's':
			(void)mk_head(b, &(struct mk){MK_USTAR, '0', name, NULL, 0, 06755});
			break;
		case 'c':
		case 'b':
		case 'p':
			(void)mk_head(b, &(struct mk){MK_USTAR,
						      lines[i][0][0] == 'c'   ? '3'
						      : lines[i][0][0] == 'b' ? '4'
									      : '6',
						      name, NULL, 0, 0});
			break;
		case 'D':
		case 'U':
			mk_pax1(b, 'x', "AIRLOCK.op",
				lines[i][0][0] == 'D' ? "delete" : "unreadable");
			mk_file(b, name, "");
			break;
		case 'O':
			mk_pax1(b, 'x', "AIRLOCK.op", "opaque");
			mk_dir(b, name);
			break;
		default:
			abort();
		}
	}
	mk_end(b);
}

#define SCRIPT(fn, ...)                                              \
	static void fn(struct buf *b)                                \
	{                                                            \
		static const char *const lines[][3] = {__VA_ARGS__}; \
		script(b, lines, ARRAY_LEN(lines));                  \
	}

SCRIPT(a26_twice, {"f", "a", "one\n"}, {"f", "a", "two\n"})
SCRIPT(a26_link_then_file, {"l", "b", "inside"}, {"f", "b"})
SCRIPT(a26_file_then_link, {"f", "b"}, {"l", "b", "inside"})
SCRIPT(a26_link_twice, {"l", "b", "inside"}, {"l", "b", "other"})
SCRIPT(a26_same_link_twice, {"l", "b", "inside"}, {"f", "c"}, {"l", "b", "inside"})
SCRIPT(a26_escape_twice, {"l", "b", "/etc"}, {"l", "b", "/etc"})
SCRIPT(a26_dir_then_file, {"d", "d"}, {"f", "d"})
SCRIPT(a26_implied_dir_then_file, {"f", "d/x"}, {"f", "d"})
SCRIPT(a26_implied_dir_then_link, {"f", "d/e/x"}, {"l", "d", "inside"})
SCRIPT(a26_file_then_dir, {"f", "d"}, {"d", "d"})
SCRIPT(a26_dir_twice, {"d", "d"}, {"f", "d/x"}, {"d", "d"})
SCRIPT(a26_delete_then_file, {"D", "a"}, {"f", "a"})
SCRIPT(a26_file_then_delete, {"f", "a"}, {"D", "a"})
SCRIPT(a26_unreadable, {"f", "a"}, {"U", "a"}, {"U", "b"}, {"O", "d"}, {"D", "d/x"})
SCRIPT(a27_case, {"f", "Readme"}, {"f", "README"})
SCRIPT(b1_through_link, {"l", "l", "out"}, {"f", "l/x"})
SCRIPT(b1_through_deep, {"l", "l", "out"}, {"f", "l/x/y/z"})
SCRIPT(b1_through_escape, {"l", "l", "/etc"}, {"f", "l/passwd"})
SCRIPT(b2_self, {"l", "s", "."}, {"l", "s/up", ".."}, {"f", "s/up/x"})
SCRIPT(b3_below, {"d", "d"}, {"l", "d/up", ".."}, {"l", "d/up/up2", ".."})
SCRIPT(b3_chain, {"d", "d"}, {"l", "d/up", ".."}, {"l", "x", "d/up/.."})
/* Inside if every link comes in; not when the host keeps something else at `d/up` or at `q`. */
SCRIPT(b3_bent, {"d", "a/b/c"}, {"l", "d/up", "../a/b/c"}, {"l", "x", "d/up/../../../y"})
SCRIPT(b3_climb, {"d", "d"}, {"f", "y"}, {"l", "x", "d/../y"})
SCRIPT(b3_dots, {"d", "d/e"}, {"f", "y"}, {"l", "d/e/x", "./.././../y/."},
       {"l", "d/z", "..x/...//a.."})
SCRIPT(b3_late, {"l", "x", "q/r/.."}, {"d", "q"}, {"l", "q/r", ".."})
SCRIPT(b3_late_host, {"l", "x", "q/r/passwd"}, {"d", "q"}, {"l", "q/r", "../hostup"})
SCRIPT(b4_through_file, {"f", "f"}, {"f", "f/x"})
SCRIPT(b4_through_hard, {"f", "f"}, {"h", "h", "f"}, {"f", "h/x"})
SCRIPT(b4_through_special, {"p", "p"}, {"f", "p/x"})
SCRIPT(b4_through_deleted, {"D", "g"}, {"f", "g/x"})
SCRIPT(b5_escape, {"f", "ok"}, {"l", "ln", "../../../x"})
SCRIPT(b5_inside, {"d", "a"}, {"f", "b"}, {"l", "a/ln", "../b"}, {"l", "self", "."},
       {"l", "dangling", "no/such"})
SCRIPT(b5_one_up, {"d", "a"}, {"l", "a/ln", "../.."})
SCRIPT(b6_unchanged, {"l", "baseabs", "/opt/tool"})
SCRIPT(b7_retarget, {"l", "baseabs", "/etc"})
SCRIPT(b8_host_abs, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_host_up, {"l", "x", "hostup"})
SCRIPT(b8_host_in, {"l", "x", "hostin/file"})
SCRIPT(b8_fake_cover, {"p", "hostabs"}, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_implied_cover, {"f", "hostabs/a"}, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_deleted_cover, {"D", "hostabs"}, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_replaced, {"d", "baseabs"}, {"l", "x", "baseabs/passwd"})
SCRIPT(b8_replaced_by_link, {"l", "baseabs", "inside"}, {"l", "x", "baseabs/passwd"})
SCRIPT(b8_replaced_inside, {"l", "basein", "inside"}, {"l", "x", "basein/passwd"})
SCRIPT(b8_dir_cover, {"d", "hostabs"}, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_link_cover, {"l", "hostabs", "inside"}, {"l", "x", "hostabs/passwd"})
SCRIPT(b8_refused_link, {"l", "r", "/etc"}, {"l", "x", "r/passwd"})
SCRIPT(b8_refused_cover, {"l", ".airlock-x", "inside"}, {"l", "x", ".airlock-x/passwd"})
SCRIPT(b9_arrow_etc, {"l", "x -> a", "/etc"})
SCRIPT(b11_symlink, {"l", "s", "inside"}, {"h", "h", "s"})
SCRIPT(b11_dir, {"d", "d"}, {"h", "h", "d"})
SCRIPT(b11_later, {"h", "h", "f"}, {"f", "f"})
SCRIPT(b11_hard, {"f", "f"}, {"h", "h", "f"}, {"h", "h2", "h"})
SCRIPT(b11_deleted, {"D", "f"}, {"h", "h", "f"})
SCRIPT(b11_self, {"h", "h", "h"})
SCRIPT(b11_late_door, {"h", "door/h", "victim"}, {"f", "victim"}, {"l", "door", "../outside"})
SCRIPT(b11_late_door_after, {"f", "victim"}, {"h", "door/h", "victim"}, {"l", "door", "../outside"})
SCRIPT(b11_from_the_top, {"d", "a"}, {"f", "a/x"}, {"d", "a/b"}, {"l", "a/b/l", "../x"},
       {"h", "a/h", "a/x"})
SCRIPT(b11_good, {"f", "d/f"}, {"h", "h", "d/f"})
SCRIPT(b12_loop, {"l", "a", "b"}, {"l", "b", "a"})
SCRIPT(b12_host_loop, {"l", "x", "loop1/file"})
SCRIPT(b13_dir_to_link, {"l", "d", "../outside"})
SCRIPT(b16_refused_source, {"f", ".git/config"}, {"h", "config", ".git/config"})
SCRIPT(c1_char, {"f", "a"}, {"c", "null"})
SCRIPT(c1_block, {"f", "a"}, {"b", "sda"})
SCRIPT(c1_fifo, {"f", "a"}, {"p", "pipe"})
SCRIPT(c2_suid, {"s", "tool"})
SCRIPT(d8_upload, {"f", "deep/er/.paperclip-upload-x"})
SCRIPT(d8_runtime, {"f", "deep/.paperclip-runtime/x"})
SCRIPT(d8_airlock, {"f", ".airlock-staging/x"})
SCRIPT(d8_ignore, {"f", ".airlockignore"})
SCRIPT(d8_repositories, {"f", ".paperclip-repositories"})
SCRIPT(d8_repositories_gone, {"D", ".paperclip-repositories"})
SCRIPT(f28_link, {"l", ".paperclip-repositories", "elsewhere"})
SCRIPT(d8_repositories_dir, {"d", ".paperclip-repositories"})
SCRIPT(f1_hook, {"f", ".git/hooks/post-checkout"})
SCRIPT(f1_nested, {"f", "vendor/lib/.git/config"})
SCRIPT(f1_file, {"f", "sub/.git", "gitdir: ../evil\n"})
SCRIPT(f1_link, {"l", ".git", "evil"})
SCRIPT(f1_delete, {"D", ".git"})
SCRIPT(f1_case, {"f", ".GiT/config"})
SCRIPT(f1_short, {"f", "git~1/config"})
SCRIPT(f1_dot, {"f", ".git./config"})
SCRIPT(f1_space, {"f", ".git /config"})
SCRIPT(f1_stream, {"f", ".git::$INDEX_ALLOCATION/config"})
SCRIPT(f1_hfs, {"f", ".g\xe2\x80\x8cit/config"})
SCRIPT(f1_hfs_bom, {"f", "\xef\xbb\xbf.git/config"})
SCRIPT(f1_backslash, {"f", "a\\.git\\config"})
SCRIPT(f1_link_into, {"l", "docs", "sub/../.Git/hooks"})
SCRIPT(f4_zwsp, {"f", ".gi\xe2\x80\x8bt/config"})
SCRIPT(f4_soft_hyphen, {"f", "\xc2\xad.git/config"})
SCRIPT(f4_tag, {"f", ".git\xf3\xa0\x80\x81/config"})
SCRIPT(f4_long_tail, {"f", ".git . . . . . . . . . . . . . . . . . . . . . . . . . . . ./config"})
SCRIPT(f4_short_folded, {"f", "GI\xe2\x80\x8dT~2./config"})
SCRIPT(f4_kelvin, {"f", ".AIRLOC\xe2\x84\xaa-staging/x"})
SCRIPT(f4_runtime, {"f", "d/.Paperclip-\xef\xbb\xbfruntime. /x"})
SCRIPT(f4_runtime_stream, {"f", ".paperclip-runtime::$DATA"})
SCRIPT(
    f4_upload_long,
    {"f",
     ".paperclip-\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c"
     "\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8c\xe2\x80\x8cupload-0123456789012345678901234567890123456789012345"})
SCRIPT(f4_airlock_short, {"f", "AIRLOC~1/x"})
SCRIPT(f4_paperclip_short, {"f", "paperc~12/x"})
SCRIPT(f4_repositories, {"f", ".PaperClip-Repositorie\xc5\xbf"})
SCRIPT(f4_like, {"f", ".paperclip-runtimes/x"}, {"f", "airloc~"}, {"f", "airlock~1"},
       {"f", ".gi\xc3\xadt"}, {"f", "paperclip"}, {"f", "g\xe2\x80\x8cit"}, {"f", "..."},
       {"f", ":git"}, {"f", "\xe2\x80\x8c"})
SCRIPT(f1_like, {"f", ".gitignore"}, {"f", ".github/x"}, {"f", "git"}, {"f", "a.git/HEAD"},
       {"f", "git~x"}, {"f", ".gita"})

static void b12_forty(struct buf *b, int links)
{
	char name[16], target[16];

	mk_file(b, "l0", "x");
	for (int i = 1; i <= links; i++) {
		(void)snprintf(name, sizeof(name), "l%d", i);
		(void)snprintf(target, sizeof(target), "l%d", i - 1);
		mk_link(b, name, target);
	}
	mk_end(b);
}

static void b12_40(struct buf *b)
{
	b12_forty(b, LINK_HOPS_MAX + 1); /* its own link is not followed by itself */
}

static void b12_41(struct buf *b)
{
	b12_forty(b, LINK_HOPS_MAX + 2);
}

#define HOSTILE(name, rule, fn)            \
	{                                  \
		name, HV_HOSTILE, rule, fn \
	}
#define REFUSED(name, rule, fn)            \
	{                                  \
		name, HV_REFUSED, rule, fn \
	}
#define ACCEPT(name, fn)                  \
	{                                 \
		name, HV_ACCEPT, NULL, fn \
	}
const struct hostile_case hostile_member_cases[] = {
    ACCEPT("A26-twice", a26_twice),
    HOSTILE("A26-link-then-file", "type_change", a26_link_then_file),
    HOSTILE("A26-file-then-link", "type_change", a26_file_then_link),
    HOSTILE("A26-link-twice", "duplicate", a26_link_twice),
    ACCEPT("A26-same-link-twice", a26_same_link_twice),
    REFUSED("A26-escape-twice", "link_escape", a26_escape_twice),
    HOSTILE("A26-dir-then-file", "type_change", a26_dir_then_file),
    HOSTILE("A26-implied-dir-then-file", "type_change", a26_implied_dir_then_file),
    HOSTILE("A26-implied-dir-then-link", "type_change", a26_implied_dir_then_link),
    HOSTILE("A26-file-then-dir", "type_change", a26_file_then_dir),
    ACCEPT("A26-dir-twice", a26_dir_twice),
    HOSTILE("A26-delete-then-file", "duplicate", a26_delete_then_file),
    HOSTILE("A26-file-then-delete", "duplicate", a26_file_then_delete),
    ACCEPT("A26-unreadable", a26_unreadable),
    ACCEPT("A27-case", a27_case),
    HOSTILE("B1-through-link", "through_link", b1_through_link),
    HOSTILE("B1-through-deep", "through_link", b1_through_deep),
    HOSTILE("B1-through-escape", "through_link", b1_through_escape),
    HOSTILE("B2-self", "through_link", b2_self),
    HOSTILE("B3-below", "through_link", b3_below),
    REFUSED("B3-chain", "link_escape", b3_chain),
    REFUSED("B3-bent", "link_escape", b3_bent),
    REFUSED("B3-climb", "link_escape", b3_climb),
    ACCEPT("B3-dots", b3_dots),
    REFUSED("B3-late", "link_escape", b3_late),
    REFUSED("B3-late-host", "link_escape", b3_late_host),
    HOSTILE("B4-through-file", "through_link", b4_through_file),
    HOSTILE("B4-through-hard-link", "through_link", b4_through_hard),
    HOSTILE("B4-through-special", "through_link", b4_through_special),
    HOSTILE("B4-through-deleted", "through_link", b4_through_deleted),
    REFUSED("B5-escape", "link_escape", b5_escape),
    ACCEPT("B5-inside", b5_inside),
    REFUSED("B5-one-up", "link_escape", b5_one_up),
    ACCEPT("B6-unchanged", b6_unchanged),
    REFUSED("B7-retarget", "link_escape", b7_retarget),
    REFUSED("B8-host-absolute", "link_escape", b8_host_abs),
    REFUSED("B8-host-up", "link_escape", b8_host_up),
    ACCEPT("B8-host-inside", b8_host_in),
    REFUSED("B8-fake-cover", "link_escape", b8_fake_cover),
    REFUSED("B8-implied-cover", "link_escape", b8_implied_cover),
    REFUSED("B8-deleted-cover", "link_escape", b8_deleted_cover),
    REFUSED("B8-replaced", "link_escape", b8_replaced),
    REFUSED("B8-replaced-by-link", "link_escape", b8_replaced_by_link),
    ACCEPT("B8-replaced-inside", b8_replaced_inside),
    REFUSED("B8-directory-cover", "link_escape", b8_dir_cover),
    REFUSED("B8-link-cover", "link_escape", b8_link_cover),
    REFUSED("B8-refused-link", "link_escape", b8_refused_link),
    REFUSED("B8-refused-cover", "link_escape", b8_refused_cover),
    REFUSED("B9-arrow-etc", "link_escape", b9_arrow_etc),
    HOSTILE("B11-symlink", "hardlink_target", b11_symlink),
    HOSTILE("B11-dir", "hardlink_target", b11_dir),
    HOSTILE("B11-later", "hardlink_target", b11_later),
    HOSTILE("B11-hard-link", "hardlink_target", b11_hard),
    HOSTILE("B11-deleted", "hardlink_target", b11_deleted),
    HOSTILE("B11-itself", "hardlink_target", b11_self),
    HOSTILE("B11-late-door", "hardlink_target", b11_late_door),
    HOSTILE("B11-late-door-after", "type_change", b11_late_door_after),
    ACCEPT("B11-from-the-top", b11_from_the_top),
    ACCEPT("B11-good", b11_good),
    REFUSED("B12-loop", "link_hops", b12_loop),
    REFUSED("B12-host-loop", "link_hops", b12_host_loop),
    ACCEPT("B12-forty-links", b12_40),
    REFUSED("B12-forty-one-links", "link_hops", b12_41),
    REFUSED("B13-dir-to-link", "link_escape", b13_dir_to_link),
    REFUSED("B16-refused-source", "hardlink_refused", b16_refused_source),
    REFUSED("C1-char", "special_file", c1_char),
    REFUSED("C1-block", "special_file", c1_block),
    REFUSED("C1-fifo", "special_file", c1_fifo),
    ACCEPT("C2-suid", c2_suid),
    REFUSED("D8-upload", "reserved_name", d8_upload),
    REFUSED("D8-runtime", "reserved_name", d8_runtime),
    REFUSED("D8-airlock", "reserved_name", d8_airlock),
    REFUSED("D8-ignore-file", "reserved_name", d8_ignore),
    HOSTILE("F28-repositories-file", "reserved_kind", d8_repositories),
    HOSTILE("F28-repositories-gone", "reserved_kind", d8_repositories_gone),
    HOSTILE("F28-repositories-link", "reserved_kind", f28_link),
    ACCEPT("F28-repositories-dir", d8_repositories_dir),
    REFUSED("F1-hook", "git_metadata", f1_hook),
    REFUSED("F1-nested", "git_metadata", f1_nested),
    REFUSED("F3-file", "git_metadata", f1_file),
    REFUSED("F3-link", "git_metadata", f1_link),
    REFUSED("F1-delete", "git_metadata", f1_delete),
    REFUSED("F4-case", "git_metadata", f1_case),
    REFUSED("F4-short-name", "git_metadata", f1_short),
    REFUSED("F4-dot", "git_metadata", f1_dot),
    REFUSED("F4-space", "git_metadata", f1_space),
    REFUSED("F4-stream", "git_metadata", f1_stream),
    REFUSED("F4-hfs", "git_metadata", f1_hfs),
    REFUSED("F4-hfs-bom", "git_metadata", f1_hfs_bom),
    REFUSED("F4-backslash", "git_metadata", f1_backslash),
    REFUSED("F1-link-into", "git_metadata", f1_link_into),
    ACCEPT("F1-like", f1_like),
    REFUSED("F4-zero-width-space", "git_metadata", f4_zwsp),
    REFUSED("F4-soft-hyphen", "git_metadata", f4_soft_hyphen),
    REFUSED("F4-tag-character", "git_metadata", f4_tag),
    REFUSED("F4-long-tail", "git_metadata", f4_long_tail),
    REFUSED("F4-short-name-folded", "git_metadata", f4_short_folded),
    REFUSED("F4-kelvin", "reserved_name", f4_kelvin),
    REFUSED("F4-runtime", "reserved_name", f4_runtime),
    REFUSED("F4-runtime-stream", "reserved_name", f4_runtime_stream),
    REFUSED("F4-upload-long", "reserved_name", f4_upload_long),
    REFUSED("F4-airlock-short", "reserved_name", f4_airlock_short),
    REFUSED("F4-paperclip-short", "reserved_name", f4_paperclip_short),
    HOSTILE("F4-repositories", "reserved_kind", f4_repositories),
    ACCEPT("F4-like", f4_like),
};
const size_t hostile_member_cases_len = ARRAY_LEN(hostile_member_cases);
