#!/bin/bash
# The one way to build, test and package Airlock. `./do help` lists the verbs.
# Needs nothing but a Debian base until `./do setup` has run; works in a git checkout and in a tarball.
set -u
cd "$(dirname "$(readlink -f "$0")")" || exit 1
top=$PWD
export LC_ALL=C.UTF-8

die() {
	printf 'do: %s\n' "$*" >&2
	exit 1
}
say() { printf '== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

usage() {
	cat <<'EOF'
usage: ./do VERB [options]

  setup    install what building and testing need (Debian packages; only what is missing)
  build    release build with gcc into build/, programs in build/bin/   [--lto] [--debug]
  run      without arguments: the guided tour; with arguments: airlock run ARGS
  test     the whole normal suite; last line: N passed, N failed, N skipped
             --suite NAME   only that suite of the release build (see meson.build files)
             --long         also -fanalyzer, valgrind, every crash point, fuzzing (LONG_PARTS="analyzer memcheck points fuzzing")
             --coverage     coverage build and report (build-cov/report/index.html)
  bench    the measures of the design against their named anchors   [NAME...]
             minutes long, only when named: huge-file, million (files), peer-sync, bulk
             (10 GiB both ways if 44 are free, else less, and says so; BENCH_HUGE_GIB=N: exactly N)
  fuzz     every fuzz target for FUZZ_SECONDS (60) each             [TARGET...]
  lint     format, clang-tidy, cppcheck, layers, headers, linked libraries, documents
  fmt      apply clang-format
  install  release build with LTO, installed                        [--prefix DIR] [--no-verify] [DESTDIR=...]
  package  a .deb and a source tarball into dist/ (reproducible)
  clean    remove every build directory

Environment: CC, JOBS (processes at once), TMPDIR (bench and test data), SOURCE_DATE_EPOCH (package).
EOF
}

# --- setup -----------------------------------------------------------------------------------

# package[=command]: with a command, the command's presence is enough whatever package brought it.
packages='
gcc=gcc libc6-dev clang=clang llvm libclang-rt-14-dev meson=meson ninja-build=ninja pkg-config=pkg-config python3=python3
libseccomp-dev libcap-dev libnghttp2-dev libmicrohttpd-dev libcurl4-openssl-dev libssl-dev libsqlite3-dev libjansson-dev libsodium-dev libuv1-dev libzstd-dev zlib1g-dev linux-libc-dev
gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc libc6-dev-arm64-cross
libcmocka-dev libarchive-dev libarchive-tools=bsdtar
git=git openssh-client=ssh openssh-server=/usr/sbin/sshd zsh=zsh fish=fish openssl=openssl ca-certificates musl-tools=musl-gcc file=file procps=ps util-linux=unshare curl=curl iproute2=ip systemd=systemd-analyze
bubblewrap=bwrap rsync=rsync nginx-light=nginx nghttp2-client=h2load wrk=wrk busybox-static attr=setfattr strace=strace
e2fsprogs=/usr/sbin/mkfs.ext4 xfsprogs=/usr/sbin/mkfs.xfs btrfs-progs=/usr/sbin/mkfs.btrfs
clang-format=clang-format clang-tidy=clang-tidy cppcheck=cppcheck mandoc=mandoc shellcheck=shellcheck
'
packages_long='valgrind=valgrind gcovr=gcovr'

missing_packages() {
	local p name cmd
	for p in $packages $packages_long; do
		name=${p%%=*} cmd=
		[ "$name" = "$p" ] || cmd=${p#*=}
		[ -n "$cmd" ] && have "$cmd" && continue
		case $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) in
		installed) ;;
		*) printf '%s ' "$name" ;;
		esac
	done
	# Agent command lines come as npm packages; any node and npm will do.
	have node || printf 'nodejs '
	have npm || printf 'npm '
}

setup() {
	local want as=
	want=$(missing_packages)
	if [ -z "$want" ]; then
		say 'setup: everything is there'
		return 0
	fi
	have apt-get || die "setup: this needs apt-get (Debian 12 or later). On another system install by hand: $want"
	if [ "$(id -u)" -ne 0 ]; then
		have sudo || die "setup: not root and no sudo here. As root run: apt-get update && apt-get install -y --no-install-recommends $want"
		as='sudo'
	fi
	say "setup: installing $want"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086
	$as apt-get update -q || die 'setup: apt-get update failed: check the network and /etc/apt/sources.list'
	# shellcheck disable=SC2086
	$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $want ||
		die 'setup: apt-get install failed; its own message above says why'
	want=$(missing_packages)
	[ -z "$want" ] || die "setup: still missing after installation: $want"
	say 'setup: done'
}

# --- build -----------------------------------------------------------------------------------

jobs() { printf '%s' "${JOBS:-$(nproc 2>/dev/null || echo 2)}"; }

# configure DIR ARGS...: meson setup once; a directory that is there keeps its own configuration.
configure() {
	local dir=$1
	shift
	have meson && have ninja || die "meson and ninja are missing: run ./do setup"
	[ -f "$dir/build.ninja" ] && return 0
	meson setup "$dir" "$@" >"$dir.log" 2>&1 || {
		cat "$dir.log" >&2
		die "meson setup of $dir failed (above); ./do setup installs what is missing"
	}
	rm -f "$dir.log"
}

compile() {
	ninja -C "$1" -j "$(jobs)" >"$1/compile.log" 2>&1 && return 0
	sed -n '/^FAILED/,$p' "$1/compile.log" | grep -vE '^\[[0-9]+/[0-9]+\] (Compiling|Linking|Generating)' | head -n 80 >&2
	grep -q '^FAILED' "$1/compile.log" || tail -n 30 "$1/compile.log" >&2
	printf 'do: the build in %s failed\n' "$1" >&2
	return 1
}

# Links, not copies: the programs find each other through /proc/self/exe.
link_bin() {
	local f
	rm -rf "${1:?}/bin"
	mkdir -p "$1/bin"
	for f in "$1"/src/prog/airlock*; do
		if [ -f "$f" ] && [ -x "$f" ]; then
			ln -s "../src/prog/${f##*/}" "$1/bin/${f##*/}"
		fi
	done
}

build() {
	local type=release lto=false
	for a in "$@"; do
		case $a in
		--lto) lto=true ;;
		--debug) type=debugoptimized ;;
		*) die "build: unknown option $a" ;;
		esac
	done
	configure build --buildtype="$type" -Db_lto="$lto"
	[ $# -eq 0 ] || meson configure build --buildtype="$type" -Db_lto="$lto" >/dev/null || exit 1
	compile build || exit 1
	link_bin build
}

run() {
	build >&2
	if [ $# -eq 0 ]; then
		exec tools/tour
	fi
	exec build/bin/airlock run "$@"
}

# --- test ------------------------------------------------------------------------------------

results=
failed_builds=0

# suite_run DIR LABEL ARGS...: one meson test call; its outcome is counted by tools/test-report.
suite_run() {
	local dir=$1 label=$2 log
	shift 2
	log=$dir/meson-logs/do-$label
	say "test: $label"
	rm -f "$log".json "$log"-*.json
	# A machine with other load is slow, not wrong: deadlines of tests are three times their own.
	meson test -C "$dir" --no-rebuild --num-processes "$(jobs)" -t "${TIMEOUT_FACTOR:-3}" --logbase "do-$label" \
		"$@" >"$dir/test-$label.out" 2>&1
	# Under a wrapper meson adds the wrapper's name to that of the log.
	[ ! -f "$log-valgrind.json" ] || mv "$log-valgrind.json" "$log.json"
	grep -aE ' (FAIL|TIMEOUT|ERROR|UNEXPECTEDPASS|SKIP)' "$dir/test-$label.out" || true
	results="$results $label=$log.json"
	suite_again "$dir" "$label" "$log.json"
}

# A few failures of whole programs (never of pure code, never of the boundary) are tried once more, alone: what then
# passes is reported as unsteady with its first output, and is a fault to be found all the same.
suite_again() {
	local dir=$1 label=$2 names
	rm -f "$dir/meson-logs/do-$label-again.json"
	names=$(python3 tools/test-report --try-again "$3") || return 0
	say "test: $label, once more:" $names
	# shellcheck disable=SC2086
	meson test -C "$dir" --no-rebuild --num-processes 1 -t "${TIMEOUT_FACTOR:-3}" --logbase "do-$label-again" $names \
		>"$dir/test-$label-again.out" 2>&1
}

test_build() {
	configure "$@"
	if ! compile "$1"; then
		failed_builds=$((failed_builds + 1))
		return 1
	fi
	link_bin "$1"
}

# Sanitizers leave the static guest alone (its own meson.build says so): it is pid 1 without a libc to hook.
sanitize() {
	export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
	test_build build-san --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false -Db_lto=false || return
	suite_run build-san sanitizers --no-suite project --suite unit --suite hostile --suite fuzz
	unset ASAN_OPTIONS UBSAN_OPTIONS
}

# Built anew: only then the log has every warning (ccache keeps them with the objects).
analyzer() {
	say 'test: gcc -fanalyzer'
	rm -rf build-analyzer
	test_build build-analyzer --buildtype=debugoptimized -Db_lto=false -Dtests=false -Dwerror=false -Dc_args=-fanalyzer || return
	tools/check-analyzer build-analyzer/compile.log || failed_builds=$((failed_builds + 1))
}

memcheck() {
	test_build build-debug --buildtype=debugoptimized -Db_lto=false || return
	export UNDER_VALGRIND=1
	TIMEOUT_FACTOR=20 suite_run build-debug valgrind --suite unit --no-suite kernel \
		--wrap 'valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --child-silent-after-fork=yes'
	unset UNDER_VALGRIND
}

# LONG_PARTS names some of them; docs/testing.md says what each does and how long it takes.
test_long() {
	local part
	for part in ${LONG_PARTS:-analyzer memcheck points fuzzing}; do
		case $part in
		analyzer | memcheck) $part ;;
		points) suite_run build long --suite long ;;
		fuzzing) fuzz || failed_builds=$((failed_builds + 1)) ;;
		*) die "test: LONG_PARTS has no part $part: analyzer memcheck points fuzzing" ;;
		esac
	done
}

# Nothing of these is counted (the static programs, other programs), or what writes the counts disturbs what they look at
# (unpack_races: a program is stopped while it holds the lock of a file of counts, and the other one waits for it), or they
# show that confinement is in force (doctor); half the time of all is theirs.
without_counts='doctor|unpack_races|guest_exec_.*|guest_pack_.*|guest_tty_.*|native_prober_.*|native_split_usr|hostile_kit|tour'

coverage() {
	local names
	have gcovr || die 'coverage: gcovr is missing: run ./do setup'
	# A confined helper cannot write its figures: they are measured with confinement off, and what shows that it is in
	# force is left to the other builds.
	test_build build-cov --buildtype=debug -Db_coverage=true -Db_lto=false -Dinsecure_no_confinement=true || return
	mapfile -t names < <(meson test -C build-cov --list --no-suite long --no-suite bench --no-suite agents --no-suite project 2>/dev/null |
		sed -n 's,^[^/]* / ,,p' | grep -vxE "$without_counts")
	suite_run build-cov coverage "${names[@]}"
	mkdir -p build-cov/report
	gcovr --root . --object-directory build-cov --filter src/ --html-details build-cov/report/index.html --print-summary build-cov
}

run_tests() {
	local suite='' long=false cover=false
	while [ $# -gt 0 ]; do
		case $1 in
		--suite)
			[ $# -ge 2 ] || die 'test: --suite needs a name'
			suite=$2
			shift
			;;
		--long) long=true ;;
		--coverage) cover=true ;;
		*) die "test: unknown option $1" ;;
		esac
		shift
	done
	export AIRLOCK_TOP=$top
	if $cover; then
		coverage
	elif test_build build --buildtype=release -Db_lto=false; then
		if [ -n "$suite" ]; then
			suite_run build "$suite" --suite "$suite"
		else
			suite_run build release --no-suite long --no-suite bench
		fi
	fi
	if [ -z "$suite" ] && ! $cover; then
		say 'test: clang build'
		CC=clang test_build build-clang --buildtype=debugoptimized -Db_lto=false
		sanitize
		if $long; then
			test_long
		fi
	fi
	# shellcheck disable=SC2086
	python3 tools/test-report --must-not-skip tests/must-not-skip.txt --failed-builds "$failed_builds" $results
}

# --- bench, fuzz, lint -----------------------------------------------------------------------

bench() {
	build
	exec python3 tests/bench/run "$@"
}

fuzz() {
	local seconds=${FUZZ_SECONDS:-60} t bad=0 name
	have clang || die 'fuzz: clang is missing: run ./do setup'
	(
		export CC=clang
		configure build-fuzz --buildtype=debugoptimized -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Db_lto=false
	) || return 1
	compile build-fuzz || return 1
	export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
	for t in build-fuzz/tests/fuzz/fuzz_*; do
		[ -f "$t" ] && [ -x "$t" ] || continue
		name=${t##*/}
		if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
		mkdir -p "build-fuzz/corpus/$name"
		say "fuzz: $name for $seconds s"
		"$t" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
			"build-fuzz/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}" >"build-fuzz/$name.log" 2>&1 || {
			bad=1
			tail -n 40 "build-fuzz/$name.log"
		}
		grep -E 'stat::(number_of_executed_units|average_exec_per_sec)' "build-fuzz/$name.log" || true
	done
	return $bad
}

c_files() { find src tests -name '*.[ch]' | sort; }

lint() {
	local bad=0 step
	# clang-tidy reads flags as clang does, so it gets the clang build's own list of them.
	CC=clang configure build-clang --buildtype=debugoptimized -Db_lto=false
	# shellcheck disable=SC2046
	ninja -C build-clang $(ninja -C build-clang -t targets all | sed -n 's/\.h: CUSTOM_COMMAND.*/.h/p') >/dev/null ||
		die 'lint: the generated headers do not build'
	[ -f build/compile_commands.json ] || build
	for step in format tidy cppcheck shell project; do
		say "lint: $step"
		"lint_$step" || {
			bad=1
			printf 'do: lint step %s found something\n' "$step" >&2
		}
	done
	return $bad
}
lint_format() { c_files | xargs clang-format --dry-run --Werror; }
lint_tidy() {
	find src -name '*.c' | sort | xargs -P "$(jobs)" -n 4 clang-tidy -p build-clang --quiet 2>/dev/null |
		grep -E 'warning:|error:' && return 1
	return 0
}
lint_cppcheck() {
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppressions-list=tools/cppcheck.suppress -D_GNU_SOURCE -D__x86_64__ -I src -j "$(jobs)" src
}
lint_shell() {
	local f
	for f in ./do .ci/run tools/* tests/*/*.sh; do
		[ -f "$f" ] && head -n 1 "$f" | grep -qE '^#!.*/(ba)?sh' && printf '%s\n' "$f"
	done | xargs shellcheck -x -S warning
}
lint_project() {
	local t bad=0
	for t in cases layers headers links docs limits names boundary; do
		tools/check-$t || bad=1
	done
	return $bad
}

fmt() { c_files | xargs clang-format -i; }

# --- install, package, clean -----------------------------------------------------------------

install_() {
	local prefix=/usr/local verify=true
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix)
			[ $# -ge 2 ] || die 'install: --prefix needs a directory'
			prefix=$2
			shift
			;;
		--prefix=*) prefix=${1#*=} ;;
		--no-verify) verify=false ;;
		DESTDIR=*) export DESTDIR="${1#*=}" ;;
		*) die "install: unknown option $1" ;;
		esac
		shift
	done
	configure build-install --buildtype=release -Db_lto=true -Dtests=false --prefix "$prefix"
	meson configure build-install --prefix "$prefix" >/dev/null || exit 1
	compile build-install || exit 1
	if $verify; then
		say 'install: tests for the agent-access map (--no-verify leaves them out, and the map says so)'
		tools/access-results build-install/src/prog >build-install/access-results.log 2>&1 ||
			printf 'do: some of them failed, as the map will say: build-install/access-results.log\n' >&2
	fi
	meson install -C build-install --no-rebuild || exit 1
}

main() {
	local verb=${1:-help}
	[ $# -eq 0 ] || shift
	case $verb in
	setup) setup "$@" ;;
	build) build "$@" && say "build: programs are in build/bin/" ;;
	run) run "$@" ;;
	test) run_tests "$@" ;;
	bench) bench "$@" ;;
	fuzz) fuzz "$@" ;;
	lint) lint "$@" ;;
	fmt) fmt ;;
	install) install_ "$@" ;;
	package) exec packaging/build "$@" ;;
	clean) rm -rf build build-* dist ;;
	help | -h | --help) usage ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}
main "$@"
