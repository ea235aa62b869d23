#include "provider/ssh/script.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* No single quote, backslash, exclamation mark or newline in it: fish and csh would read them. */
#define SCRIPT                                                                                            \
	"read -r n h s m || exit 97; "                                                                    \
	"f() { echo; echo \"airlock $n fail $*\"; exit 98; }; "                                           \
	"for t in uname mkdir head wc chmod mv rm; do command -v $t >/dev/null 2>&1 || f tool $t; done; " \
	"umask 077; u=$(uname -sm); u=${u%% *}-${u##* }; "                                                \
	"test \"$u\" = \"$m\" || f machine \"$u\"; "                                                      \
	"test -n \"${XDG_CACHE_HOME:-$HOME}\" || f home; "                                                \
	"d=${XDG_CACHE_HOME:-$HOME/.cache}/airlock; g=$d/guest-$h; "                                      \
	"test -d \"$d\" || mkdir -p \"$d\" 2>/dev/null; test -L \"$d\" && f link \"$d\"; "                \
	"test -O \"$d\" && chmod 700 \"$d\" && test -w \"$d\" || f cache \"$d\"; "                        \
	"w=need; if test -f \"$g\" && test -x \"$g\" && "                                                 \
	"x=$(sha256sum <\"$g\" 2>/dev/null); then "                                                       \
	"if test \"${x%% *}\" = \"$h\"; then w=have; fi; fi; "                                            \
	"echo; i=0; while :; do echo \"airlock $n $w\"; read -r a || exit 97; "                           \
	"if test $w = need; then t=$d/.new-$n; rm -f \"$t\"; "                                            \
	"{ head -c \"$s\" >\"$t\"; } 2>/dev/null; "                                                       \
	"test \"$(($(wc -c <\"$t\")))\" -eq \"$s\" || { rm -f \"$t\"; f write \"$t\"; }; "                \
	"if x=$(sha256sum <\"$t\" 2>/dev/null); then "                                                    \
	"test \"${x%% *}\" = \"$h\" || { rm -f \"$t\"; f hash \"$t\"; }; fi; "                            \
	"chmod 700 \"$t\" && mv -f \"$t\" \"$g\" || f write \"$g\"; fi; "                                 \
	"\"$g\" --version >/dev/null 2>&1 && break; test -e \"$g\" && f noexec \"$g\"; "                  \
	"i=$((i+1)); test $i -lt 3 || f gone \"$g\"; w=need; done; "                                      \
	"echo \"airlock $n ready\"; exec \"$g\" remote"

const char *script_command(void)
{
	return "exec /bin/sh -c '" SCRIPT "'";
}

static bool is_word(const char *p, size_t n, const char *word)
{
	return n == strlen(word) && memcmp(p, word, n) == 0;
}

enum script_word script_find(const char *p, size_t n, const char *nonce, size_t *ret_used,
			     struct view *ret_detail)
{
	static const struct {
		const char *text;
		enum script_word word;
	} words[] = {{"have", SCRIPT_HAVE}, {"need", SCRIPT_NEED}, {"ready", SCRIPT_READY}};
	char mark[SCRIPT_NONCE + 16];
	size_t len = (size_t)snprintf(mark, sizeof(mark), "airlock %s ", nonce);
	const char *line = p, *end;

	while ((end = memchr(line, '\n', n - (size_t)(line - p)))) {
		size_t rest = (size_t)(end - line);

		*ret_used = (size_t)(end + 1 - p);
		if (rest > len && memcmp(line, mark, len) == 0) {
			const char *w = line + len;

			rest -= len;
			for (size_t i = 0; i < ARRAY_LEN(words); i++)
				if (is_word(w, rest, words[i].text))
					return words[i].word;
			if (rest > 5 && memcmp(w, "fail ", 5) == 0) {
				*ret_detail = (struct view){w + 5, rest - 5};
				return SCRIPT_FAIL;
			}
		}
		line = end + 1;
	}
	*ret_used = (size_t)(line - p);
	return SCRIPT_NOTHING;
}
