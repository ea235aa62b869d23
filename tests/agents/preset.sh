#!/bin/bash
# preset.sh CLI: 'airlock run CLI ...' and nothing else: the preset finds the real CLI, gives it its model through a bridge,
# and a real edit comes back. The key is on the host only (B-01, B-05, S2-03).
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
cli=$1
key=stand-in-key-0123456789
task='Change the greeting in greeting.txt so that it greets airlock, write a note, and run the check.'

case $cli in
claude) var=ANTHROPIC_API_KEY url=ANTHROPIC_BASE_URL path='' words=(-p "$task") policy=anthropic ;;
codex) var=OPENAI_API_KEY url=OPENAI_BASE_URL path=/v1 words=(exec --skip-git-repo-check -m gpt-5 "$task") policy=openai ;;
gemini) var=GEMINI_API_KEY url=GOOGLE_GEMINI_BASE_URL path='' words=(-m gemini-2.5-flash -p "$task") policy=google ;;
opencode) var=ANTHROPIC_API_KEY url=ANTHROPIC_BASE_URL path=/v1 words=(run -m anthropic/claude-sonnet-4-5 "$task") policy=anthropic ;;
esac

edited() {
	[ "$(cat "$W/greeting.txt")" = 'Hello, airlock' ] && [ "$(cat "$W/notes/made-by-agent.md")" = '# Written by the agent' ] &&
		[ "$(cat "$W/check.out")" = passed ] && [ "$(cat "$W/other.txt")" = 'left alone' ]
}

# One user: the ordinary one where there is a choice, which is the harder case.
for u in $(users); do :; done
fresh "$u"
mkfifo "$T/port"
STANDIN_KEY=$key node "$here/model_server.js" "$T/model-log" /workspace >"$T/port" &
server=$!
trap 'kill $server; rm -rf "${T:?}"' EXIT
read -r port <"$T/port"
caller=("PATH=$agents/bin:/usr/bin:/bin" "$url=http://127.0.0.1:$port$path")

airlock run --quiet "$cli" "${words[@]}"
check "$cli: without a key it is not started" status_is 125
check "$cli: and the variable is named" err_has "set $var"
caller+=("$var=$key")
airlock run --timeout 300 "$cli" "${words[@]}"
check "$cli: exit status" status_is 0
check "B-02 $cli: the host has exactly the edit" changed '~./greeting.txt' '+./notes' '+./notes/made-by-agent.md' '+./check.out'
check "B-02 $cli: the contents are right" edited
check "$cli: what was granted is said" err_has "agent: model: calls to http://127.0.0.1:$port ($policy)"
check "$cli: network none" err_has 'network none'
check "S2-03 $cli: the model saw the host's key" grep -q '"real":true' "$T/model-log"
check "S2-03 $cli: and nothing else" bash -c '! grep -q "\"real\":false" "$1"' - "$T/model-log"
check "B-05 $cli: the key is in no file of the host" bash -c '! grep -rqs "$1" "$2" "$3"' - "$key" "$T/state" "$T/ws"
check "B-05 $cli: home untouched" home_untouched

(cd "$W" && listing) >"$T/before"
airlock run --agent "$cli" --no-preset -- env
check "$cli --no-preset: the command is run as it is" status_is 0
check "B-05 $cli --no-preset: no key inside" bash -c '! grep -q "$1" "$2"' - "$key" "$T/out"
finish
