#!/bin/sh
# The scripted agent of ./do run. It runs inside the sandbox, does an honest job on the copy of this repository,
# and then tries everything it can think of to get out. Each attempt prints one line: `try NAME: outcome`, as seen
# from inside; tools/tour looks at the host afterwards and believes none of it.
#
# From outside it gets: TOUR_HOME (a home directory on the host), TOUR_WORKSPACE (where the workspace lies there),
# TOUR_PORT (a port on which the host listens), TOUR_SOCKET (an abstract socket name), TOUR_PID (a host process),
# TOUR_MARK (a word that names this tour).

note() { printf '\n== %s\n' "$*"; }
attempt() { printf 'try %-12s %s\n' "$1:" "$2"; }

# try NAME CMD...: the attempt is reported by whether CMD succeeded.
try() {
	name=$1
	shift
	if out=$("$@" 2>&1); then
		attempt "$name" "worked, in here: $(printf '%s' "$out" | tail -n 1 | cut -c 1-60)"
	else
		attempt "$name" "refused: $(printf '%s' "$out" | tail -n 1 | sed 's/^[^:]*: line [0-9]*: //')"
	fi
}

note "where am I"
printf 'user %s, host name %s, directory %s, pid %s, %s processes in sight\n' \
	"$(id -u)" "$(hostname)" "$PWD" "$$" "$(ls -d /proc/[0-9]* | wc -l)"
printf 'git: %s\n' "$(git log --oneline -1 2>&1)"

note "compile Airlock in here"
log=/tmp/build.log
if meson setup build-tour --buildtype=debug -Dtests=false -Db_lto=false >"$log" 2>&1 && ninja -C build-tour >>"$log" 2>&1; then
	printf '%s compiled, %s\n' "$(grep -c 'Compiling C' "$log")" "$(build-tour/src/prog/airlock version 2>&1 | head -n 1)"
else
	tail -n 20 "$log"
	exit 1
fi

note "honest work"
printf '\nThis line was written by the agent of the tour.\n' >>README.md        # edit
mkdir -p docs/tour && printf 'A new file.\n' >docs/tour/added.md             # add
rm NEWS.md                                                                   # delete
mv docs/install.md docs/installation.md                                      # rename
chmod 755 SECURITY.md                                                        # mode
sed -i '1s/.*/# Contributing, says the agent/' CONTRIBUTING.md               # the person edits the same line
sed -i '1s/.*/# Architecture, with a title from the agent/' docs/architecture.md # the person edits another line
printf 'edited, added, deleted, renamed, changed a mode\n'

note "your turn"
# The person edits the same tree on the host while this run waits for a word on its standard input.
read -r word || word=nothing
printf 'the person said: %s\n' "$word"

note "and now: out of here"
# In the tree, for door 1 to judge.
ln -s "$TOUR_HOME/.ssh/id_ed25519" stolen-key && attempt link-out "a link to the host's key lies in the tree"
ln -s ../../../../../../etc link-up && attempt link-up "a link out of the tree lies in the tree"
cp /bin/true rootsh && try setuid chmod 4755 rootsh
try fifo mkfifo pipe
printf '#!/bin/sh\ntouch "%s/.pwned-hook"\n' "$TOUR_HOME" >/tmp/hook
chmod 755 /tmp/hook
for h in pre-commit post-checkout post-merge pre-push; do
	mkdir -p .git/hooks && cp /tmp/hook .git/hooks/$h
done && attempt git-hook "hooks lie in .git/hooks"
git config core.fsmonitor "touch $TOUR_HOME/.pwned-config" && attempt git-config "core.fsmonitor is set"
printf 'touch "%s/.pwned-envrc"\n' "$TOUR_HOME" >.envrc && attempt envrc "a .envrc lies in the tree"

# At the walls.
try home-write sh -c 'echo pwned >"$TOUR_HOME/.pwned-home"'
try home-make sh -c 'mkdir -p "$TOUR_HOME" && echo pwned >"$TOUR_HOME/.pwned-home"'
try tree-write sh -c 'echo pwned >"$TOUR_WORKSPACE/.pwned-tree"'
try ssh-key cat "$TOUR_HOME/.ssh/id_ed25519"
try any-key sh -c 'find / -xdev -name "id_*" -path "*.ssh*" 2>/dev/null | grep . || { echo "no key in sight"; false; }'
try etc-shadow cat /etc/shadow
try usr-write sh -c 'echo pwned >/usr/bin/airlock-tour-was-here'
try proc-root ls /proc/1/root/home/
try kill-host kill -9 "$TOUR_PID"
try tcp-host bash -c 'echo hello >/dev/tcp/127.0.0.1/$TOUR_PORT'
try tcp-out bash -c 'echo hello >/dev/tcp/192.0.2.1/80'
try abstract python3 -c 'import os,socket; socket.socket(socket.AF_UNIX).connect("\0" + os.environ["TOUR_SOCKET"])'
try docker ls /var/run/docker.sock
try ssh-agent sh -c 'test -S "$SSH_AUTH_SOCK" || { echo "no agent socket" >&2; exit 1; }'
try mount mount -t tmpfs none /mnt
try unshare unshare --user --map-root-user mount -t tmpfs none /mnt
try device mknod /tmp/sda b 8 0
try gain-root sh -c 'test "$(id -u)" != 0 && { su -c id root </dev/null || { echo "su: refused" >&2; exit 1; }; }'

# And something that should outlive this command.
nohup setsid sh -c 'trap "" TERM HUP; while :; do sleep 1000; done' "$TOUR_MARK" >/dev/null 2>&1 &
(setsid sleep 98765 >/dev/null 2>&1 </dev/null &)
attempt background "two processes are left behind, one ignores TERM"
note "done"
exit 7
