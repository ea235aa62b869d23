#!/bin/bash
# RT-05, RT-06, FR-B068: the install command of a run, with npm and a package that lies on a read-only bind.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# A CLI as a registry would deliver it. (A CLI of the bind itself cannot be npm's source: npm changes the mode of
# what it links to, and a bind is read-only.)
mkdir -p "$T/source" "$T/packages"
cat >"$T/source/package.json" <<'EOF'
{"name": "hello-agent", "version": "3.2.1", "bin": {"hello-agent": "cli.js"}}
EOF
printf '#!/usr/bin/env node\nconsole.log("hello-agent " + require("./package.json").version);\n' >"$T/source/cli.js"
chmod 755 "$T/source/cli.js"
npm pack --silent --pack-destination "$T/packages" "$T/source" >/dev/null || exit 1
chmod -R a+rX "$T/packages"

# No network is needed, and there is none.
# shellcheck disable=SC2016 # expanded inside
npm_install='echo run >>"$HOME/installs"; npm install --offline --global --no-audit --no-fund --prefix "$HOME/.local" /opt/packages/hello-agent-3.2.1.tgz'
flow() {
	run --bind-ro "$T/packages:/opt/packages" "$@"
}

# shellcheck disable=SC2016 # expanded inside
for u in $(users); do
	fresh "$u"
	run --cli gemini --install 'echo run >>"$HOME/installs"' -- 'cat "$HOME/installs" 2>/dev/null || echo skipped'
	check "RT-05 present, as $u: install skipped" out_has '^skipped$'

	fresh "$u"
	flow --cli hello-agent --install "$npm_install" \
		-- 'command -v hello-agent; hello-agent; echo "installs: $(wc -l <"$HOME/installs")"; ls -A "$HOME"'
	check "RT-05 absent, as $u: works after the install" status_is 0
	check "RT-05 absent, as $u: found on PATH" out_has '^/home/agent/.local/bin/hello-agent$'
	check "RT-05 absent, as $u: runs" out_has '^hello-agent 3.2.1$'
	check "RT-05 absent, as $u: ran once" out_has '^installs: 1$'
	check "RT-06 absent, as $u: no profile written" out_lacks '^\.\(profile\|bashrc\|bash_profile\)$'
	check "RT-05 absent, as $u: nothing came back" changed

	fresh "$u"
	flow --cli hello-agent --install 'echo run >>/tmp/installs; echo no network here >&2; exit 9' -- 'echo launched'
	check "RT-05 failed install, as $u: launch probe fails" status_is 125
	check "RT-05 failed install, as $u: its status is logged" err_has 'status 9'
	check "RT-05 failed install, as $u: the missing CLI is named" err_has 'hello-agent'
	check "RT-05 failed install, as $u: not launched" out_lacks launched

	fresh "$u"
	flow --cli hello-agent --install 'npm install --offline --global --no-audit --no-fund --prefix "$HOME/odd" /opt/packages/hello-agent-3.2.1.tgz' -- 'echo launched'
	check "FR-B068 installed elsewhere, as $u: fails" status_is 125
	check "FR-B068 installed elsewhere, as $u: says where it is" err_has '/home/agent/odd/.*hello-agent'
done
finish
