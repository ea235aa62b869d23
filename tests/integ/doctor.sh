#!/bin/bash
# doctor.sh AIRLOCK: `airlock doctor` as people and programs meet it (FR-B010, FR-B024, FR-B146).
set -u
airlock=$1
T=$(mktemp -d "${TMPDIR:-/tmp}/airlock-doctor.XXXXXX")
trap 'rm -rf "${T:?}"' EXIT
export HOME=$T/home XDG_STATE_HOME=$T/state
mkdir "$HOME"
n=0 bad=0

check() {
	local text=$1
	shift
	n=$((n + 1))
	if "$@"; then echo "ok $n - $text"; else
		echo "not ok $n - $text"
		bad=$((bad + 1))
		sed 's/^/# /' "$T/out" "$T/err" | head -n 60
	fi
}

# as STATUS COMMAND...: runs it, and compares the exit status
as() {
	local want=$1 got
	shift
	"$@" >"$T/out" 2>"$T/err"
	got=$?
	[ "$got" = "$want" ] || { echo "# exit status $got instead of $want"; return 1; }
}

# field LAYER KEY: from the JSON in $T/out
field() {
	python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(next(l[sys.argv[3]] for l in d["layers"] if l["layer"] == sys.argv[2]))' "$T/out" "$1" "$2"
}

field_is() {
	[ "$(field "$1" "$2")" = "$3" ]
}

# What a namespace around does to everything below it, without a right on the host.
switched_off() {
	unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"' - "$@"
}

check 'works here: exit status 0' as 0 "$airlock" doctor
check 'works here: says so' grep -q '^`airlock run` works here\.$' "$T/out"
check 'works here: the table has the helper programs' grep -q '^helper programs  *in force' "$T/out"
check 'works here: nothing is left in the state directory' test ! -e "$T/state"
check 'JSON: exit status 0' as 0 "$airlock" doctor --json
check 'JSON: state of a layer' field_is overlay state 'in force'
check 'JSON: what a run insists on' field_is overlay without overlay
check 'FR-B146 quick: exit status 0' as 0 "$airlock" doctor --quick --json
check 'FR-B146 quick: says what was not tried' field_is overlay state 'not tried'
check 'FR-B010 switched off: exit status 1' as 1 switched_off "$airlock" doctor
check 'FR-B010 switched off: cause' grep -q 'user.max_user_namespaces is 0' "$T/out"
check 'FR-B010 switched off: remedy' grep -q 'remedy: .*sudo sysctl --system' "$T/out"
check 'FR-B010 switched off: summary names it once' grep -q 'does not work here. Missing: user namespace\.$' "$T/out"
check 'FR-B010 switched off: JSON' as 1 switched_off "$airlock" doctor --json
check 'FR-B010 switched off: JSON cause' field_is userns cause userns_max_zero
check 'FR-B010 switched off: dependents follow' field_is pivot cause needs_userns
check 'wrong word: exit status 2' as 2 "$airlock" doctor now
check 'wrong option: exit status 2' as 2 "$airlock" doctor --jsn
check 'full disk is not health: exit status 125' as 125 sh -c '"$1" doctor --json >/dev/full' - "$airlock"
echo "1..$n"
[ "$bad" = 0 ]
