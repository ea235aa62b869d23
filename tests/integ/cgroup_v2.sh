#!/bin/sh
# usage: cgroup_v2.sh AIRLOCK
#
# --memory, --pids and --cpus are in force through cgroup version 2 (RT-08, B-05). Needs a hierarchy that has the three
# controllers: that of a user-mode kernel (Debian: user-mode-linux), which is booted on this machine's files, read-only, so that
# nothing of the machine's own groups is touched. Skips with the reason without one.
set -eu
case ${2:-} in
'') ;;
inside) # pid 1 of the user-mode kernel
	airlock=$1
	export PATH=/usr/sbin:/usr/bin:/sbin:/bin
	mount -t proc proc /proc
	mount -t sysfs sys /sys
	mount -t tmpfs -o mode=1777 tmp /mnt
	mount -t cgroup2 none /sys/fs/cgroup
	mkdir /sys/fs/cgroup/init
	echo $$ >/sys/fs/cgroup/init/cgroup.procs
	sh "$0" "$airlock" check /sys/fs/cgroup /mnt || echo "cgroup_v2: FAILED"
	exec python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
	;;
check) # AIRLOCK check HIERARCHY DIR
	airlock=$1 cg=$3 dir=$4
	echo '+cpu +memory +pids' >"$cg/cgroup.subtree_control"
	mkdir -p "$dir/ws" "$dir/home"
	cd "$dir/ws"
	export HOME="$dir/home" XDG_STATE_HOME="$dir/state"
	# What a kernel of its own lacks is not what is looked at here.
	without=
	grep -q overlay /proc/filesystems || without='--without overlay'
	[ -d /sys/kernel/security/landlock ] || without="$without --without landlock"
	mkfifo "$dir/gate"
	# shellcheck disable=SC2086
	"$airlock" run --quiet $without --memory 64m --pids 50 --cpus 0.5 -- \
		'cat /proc/self/cgroup; echo ready; read go; dd if=/dev/zero of=/dev/null bs=256M count=1; echo "dd $?"' \
		<"$dir/gate" >"$dir/out" 2>"$dir/err" &
	exec 9>"$dir/gate"
	until grep -q ready "$dir/out" || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
	for f in memory.max pids.max cpu.max; do
		printf '%s %s\n' "$f" "$(cat "$cg"/airlock/*/$f)"
	done >"$dir/limits"
	echo go >&9
	wait $! || true
	cat "$dir/limits" "$dir/out" "$dir/err"
	grep -qx 'memory.max 67108864' "$dir/limits"
	grep -qx 'pids.max 50' "$dir/limits"
	grep -qx 'cpu.max 50000 100000' "$dir/limits"
	# The sandbox does not learn where its group lies.
	grep -qx '0::/' "$dir/out"
	# 128 + KILL: the group's limit, for the machine has more.
	grep -qx 'dd 137' "$dir/out"
	! ls -d "$cg"/airlock/*/ 2>/dev/null
	echo 'cgroup_v2: passed'
	exit 0
	;;
esac
airlock=$1
if ! command -v linux.uml >/dev/null 2>&1; then
	echo 'skipped: no user-mode kernel to look at cgroup version 2 in (apt-get install user-mode-linux)'
	exit 77
fi
dir=$(mktemp -d /tmp/airlock-cgroup-v2-XXXXXX)
trap 'rm -rf "$dir"' EXIT
printf '#!/bin/sh\nexec sh %s %s inside\n' "$(readlink -f "$0")" "$(readlink -f "$airlock")" >"$dir/init"
chmod 755 "$dir" "$dir/init"
timeout 280 linux.uml mem=768M rootfstype=hostfs rootflags=/ ro "init=$dir/init" con=null con0=null,fd:1 ssl=null quiet \
	>"$dir/console" 2>&1 </dev/null || true
cat "$dir/console"
grep -q 'cgroup_v2: passed' "$dir/console"
