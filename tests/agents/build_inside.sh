#!/bin/bash
# A real compile: Airlock itself, with meson, in the native sandbox, from a copy of this repository.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
source=$(git -C "$here" rev-parse --show-toplevel 2>/dev/null) || {
	echo '1..0 # SKIP not run from a git checkout'
	exit 77
}

fresh self
rm -rf "${T:?}/ws"
git clone -q --no-hardlinks "$source" "$T/ws"
W=$T/ws
(cd "$W" && listing) >"$T/before"
airlock run --cli meson --cli ninja --cli cc -- '
	meson setup out -Db_lto=false >setup.log && ninja -C out >build.log 2>&1 || { tail -n 30 setup.log build.log; exit 1; }
	out/src/prog/airlock version >built-version.txt
	rm -rf out setup.log build.log'
check 'real compile: exit status' status_is 0
check 'real compile: only the note came back' changed '+./built-version.txt'
check 'real compile: the built program runs' grep -q '[0-9]' "$W/built-version.txt"
finish
