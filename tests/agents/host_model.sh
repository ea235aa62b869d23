#!/bin/bash
# The other place a model can be: a server on the host, reached with --net host, which the run must say aloud.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

fresh self
mkfifo "$T/port"
node "$here/model_server.js" "$T/model-log" /workspace >"$T/port" &
server=$!
trap 'kill $server; rm -rf "$T"' EXIT
read -r port <"$T/port"

run --net host --cli claude --setenv ANTHROPIC_API_KEY=k --setenv "MODEL_PORT=$port" -- "sh $tools/inside.sh claude"
check 'claude --net host: exit status' status_is 0
check 'claude --net host: the host has exactly the edit' changed '~./greeting.txt' '+./notes' '+./notes/made-by-agent.md' '+./check.out'
check 'claude --net host: said aloud' err_has 'host'
check 'claude --net host: the host model was asked' grep -q '"step":"Edit"' "$T/model-log"

# B-05: without it the same server is out of reach.
(cd "$W" && listing) >"$T/before"
run --cli node --setenv "MODEL_PORT=$port" -- 'node -e "require(\"http\").get({host:\"127.0.0.1\",port:process.env.MODEL_PORT},()=>process.exit(0)).on(\"error\",(e)=>{console.log(e.code);process.exit(3)})"'
check 'B-05 --net none: the host loopback is not there' status_is 3
check 'B-05 --net none: refused' out_has ECONNREFUSED
finish
