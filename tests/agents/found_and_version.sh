#!/bin/bash
# RT-02, RT-03, RT-04: each CLI is found inside by `command -v` on the PATH that a read-only bind gives, and runs.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

version_of() {
	node -p "require('$agents/node_modules/$1/package.json').version"
}

for u in $(users); do
	for pair in claude=@anthropic-ai/claude-code codex=@openai/codex gemini=@google/gemini-cli; do
		cli=${pair%%=*}
		fresh "$u"
		run --cli "$cli" --cli node -- "command -v $cli && $cli --version"
		check "RT-04 $cli as $u: exit status" status_is 0
		check "RT-04 $cli as $u: found by command -v" out_has "^/opt/agents/bin/$cli\$"
		check "RT-02 $cli as $u: says its version" out_has "$(version_of "${pair#*=}" | sed 's/\./\\./g')"
		check "B-05 $cli as $u: nothing came back" changed
		check "B-05 $cli as $u: home untouched" home_untouched
	done
	# RT-04: absent and no install command: loud, before launch; what is on the host does not count.
	fresh "$u"
	airlock run --cli claude -- 'echo launched'
	check "RT-04 claude not supplied, as $u: fails" status_is 125
	check "RT-04 claude not supplied, as $u: names it" err_has 'claude'
	check "RT-04 claude not supplied, as $u: not launched" out_lacks launched
	# RT-03: what the run does not use is not asked for.
	airlock run -- 'command -v claude || echo none'
	check "RT-03 no CLI used, as $u: runs" status_is 0
	check "RT-03 no CLI used, as $u: none there" out_has '^none$'
done
finish
