#!/bin/sh
# inside.sh CLI: runs in the sandbox. Starts the stand-in model on the sandbox's loopback, lets the CLI do its task,
# prints what the model was asked and what the CLI left in the home, and passes on the CLI's exit status.
#
# With MODEL_PORT set the model is somebody else's (a server on the host, --net host).
set -eu
cli=$1
here=$(cd "$(dirname "$0")" && pwd)
task='Change the greeting in greeting.txt so that it greets airlock, write a note, and run the check.'
log=$HOME/.model-log

if [ -z "${MODEL_PORT:-}" ]; then
	mkfifo "$TMPDIR/port"
	node "$here/model_server.js" "$log" "$PWD" >"$TMPDIR/port" &
	server=$!
	read -r MODEL_PORT <"$TMPDIR/port" || true
	[ -n "$MODEL_PORT" ] || exit 99
fi
base=http://127.0.0.1:$MODEL_PORT
status=0
case $cli in
claude)
	ANTHROPIC_BASE_URL=$base CLAUDE_CODE_MAX_RETRIES=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
		claude -p "$task" --permission-mode acceptEdits --allowedTools 'Read Edit Write Bash' </dev/null || status=$?
	;;
codex)
	# Its own sandbox is off: the environment is the sandbox, and two layers hide who refuses (FR-B182).
	codex exec -m gpt-5 -c model_provider=standin \
		-c "model_providers.standin={name=\"standin\",base_url=\"$base/v1\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\",request_max_retries=0,stream_max_retries=0}" \
		--dangerously-bypass-approvals-and-sandbox --skip-git-repo-check "$task" </dev/null || status=$?
	;;
gemini)
	mkdir -p "$HOME/.gemini"
	printf '{"security":{"auth":{"selectedType":"gemini-api-key"}}}\n' >"$HOME/.gemini/settings.json"
	GOOGLE_GEMINI_BASE_URL=$base gemini -m gemini-2.5-flash --approval-mode yolo --skip-trust -p "$task" \
		</dev/null || status=$?
	;;
esac
[ -z "${server:-}" ] || kill "$server"
[ ! -e "$log" ] || sed 's/^/model: /' "$log"
for f in "$HOME"/.[!.]*; do
	echo "home: ${f##*/}"
done
exit $status
