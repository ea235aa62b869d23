#!/bin/bash
# editing_task.sh CLI: a real agent CLI does a real editing task against the stand-in model (B-01, B-05, CP-02).
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
cli=$1
key=stand-in-key-0123456789

case $cli in
claude) var=ANTHROPIC_API_KEY state=.claude.json tools_used='Read Edit Write Bash text' ;;
codex) var=OPENAI_API_KEY state=.codex tools_used='exec_command exec_command exec_command text' ;;
gemini) var=GEMINI_API_KEY state=.gemini tools_used='replace write_file run_shell_command text' ;;
esac

# The model's log: every step asked for was answered by the CLI with a tool's result, in order.
steps_are() {
	local got
	got=$(sed -n 's/^model: //p' "$T/out" | node -e '
		const lines = require("fs").readFileSync(0, "utf8").trim().split("\n").map((l) => JSON.parse(l));
		const main = lines.filter((l) => l.step);
		const seen = main.findIndex((l) => l.step !== "text");
		console.log(main.slice(seen).map((l) => l.step).join(" "));')
	[ "$got" = "$1" ] || {
		echo "# the model was led through: $got"
		return 1
	}
}

edited() {
	[ "$(cat "$W/greeting.txt")" = 'Hello, airlock' ] && [ "$(cat "$W/notes/made-by-agent.md")" = '# Written by the agent' ] &&
		[ "$(cat "$W/check.out")" = passed ] && [ "$(cat "$W/other.txt")" = 'left alone' ]
}

for u in $(users); do
	fresh "$u"
	run --cli "$cli" --setenv "$var=$key" -- "sh $tools/inside.sh $cli"
	check "$cli as $u: exit status" status_is 0
	check "$cli as $u: the CLI's own tools did it, in order" steps_are "$tools_used"
	check "B-02 $cli as $u: the host has exactly the edit" changed '~./greeting.txt' '+./notes' '+./notes/made-by-agent.md' '+./check.out'
	check "B-02 $cli as $u: the contents are right" edited
	check "B-05 $cli as $u: the CLI's state is in the sandbox home" out_has "^home: $state\$"
	check "B-05 $cli as $u: and not in the host's" home_untouched
	check "B-05 $cli as $u: the key is in no file of the host" bash -c '! grep -rqs "$1" "$2"' - "$key" "$T/state"
done

# A refusing model: the CLI fails, and that is the exit status of the run.
fresh self
run --cli "$cli" --setenv "$var=$key" --setenv STANDIN_FAIL=1 --timeout 300 -- "sh $tools/inside.sh $cli; s=\$?; [ \$s != 0 ] && exit 42"
check "$cli refused by its model: failure is passed on" status_is 42
check "$cli refused by its model: nothing changed" changed
finish
