# bash completion for airlock. Made by tools/gen-completions; edit that, not this.

_airlock_runs() { airlock ps -a 2>/dev/null | awk 'NR > 1 { print $1 }'; }
_airlock_envs() { airlock env list 2>/dev/null | awk '{ print $1 }'; }
_airlock_images() { airlock image list 2>/dev/null | awk 'NR > 1 { print $1; for (i = 6; i <= NF; i++) print $i }'; }
_airlock_policies() { airlock policy list 2>/dev/null | awk '{ print $1 }'; }
_airlock_presets() { airlock preset list 2>/dev/null | awk '{ print $1 }'; }

_airlock() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} i words=
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W 'run exec shell ps logs stop runs diff apply discard recover audit rm prune unpack manifest env bridge policy serve access-map company user agent project token preset image doctor version help' -- "$cur")
		return
	fi
	# After -- comes a command of its own.
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = -- ]; then
			mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
			return
		fi
	done
	# An environment is made of the options of run.
	if [ "$verb:${COMP_WORDS[2]}" = env:create ] && [ "$COMP_CWORD" -gt 3 ]; then verb=run; fi
	case $verb:$prev in
	run:--workspace | run:-w)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	run:--env | run:-e)
		mapfile -t COMPREPLY < <(compgen -W "$(_airlock_envs)" -- "$cur")
		return
		;;
	run:--provider)
		mapfile -t COMPREPLY < <(compgen -W 'native local ssh' -- "$cur")
		return
		;;
	run:--image)
		mapfile -t COMPREPLY < <(compgen -W "$(_airlock_images)" -- "$cur")
		return
		;;
	run:--ssh)
		return
		;;
	run:--ssh-key)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--ssh-known-hosts)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--ssh-config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--ssh-jump)
		return
		;;
	run:--ssh-guest)
		mapfile -t COMPREPLY < <(compgen -W 'auto never always' -- "$cur")
		return
		;;
	run:--ssh-max-runs)
		return
		;;
	run:--ssh-grace)
		return
		;;
	run:--net)
		mapfile -t COMPREPLY < <(compgen -W 'none host allow=' -- "$cur")
		[ "${COMPREPLY[*]}" != allow= ] || compopt -o nospace 2>/dev/null
		return
		;;
	run:--resolve)
		return
		;;
	run:--agent)
		return
		;;
	run:--on-conflict)
		mapfile -t COMPREPLY < <(compgen -W 'keep-host take-sandbox' -- "$cur")
		return
		;;
	run:--map)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--sync-out)
		mapfile -t COMPREPLY < <(compgen -W 'changes tar' -- "$cur")
		return
		;;
	run:--include)
		return
		;;
	run:--exclude)
		return
		;;
	run:--git)
		mapfile -t COMPREPLY < <(compgen -W 'none shallow full' -- "$cur")
		return
		;;
	run:--bind-ro)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--memory)
		return
		;;
	run:--pids)
		return
		;;
	run:--cpus)
		return
		;;
	run:--without)
		mapfile -t COMPREPLY < <(compgen -W 'cgroup landlock seccomp overlay' -- "$cur")
		return
		;;
	run:--shell)
		mapfile -t COMPREPLY < <(compgen -W 'sh bash' -- "$cur")
		return
		;;
	run:--setenv)
		return
		;;
	run:--env-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--cli)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
		;;
	run:--install)
		return
		;;
	run:--timeout)
		return
		;;
	run:--api)
		return
		;;
	run:--api-key-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	run:--api-run-id)
		return
		;;
	run:--api-transport)
		mapfile -t COMPREPLY < <(compgen -W 'direct http2 queue' -- "$cur")
		return
		;;
	run:--policy)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_airlock_policies)" -- "$cur")
		return
		;;
	run:--upstream)
		return
		;;
	run:--log-limit)
		return
		;;
	exec:--shell)
		mapfile -t COMPREPLY < <(compgen -W 'sh bash' -- "$cur")
		return
		;;
	exec:--setenv)
		return
		;;
	exec:--env-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	exec:--cli)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
		;;
	exec:--install)
		return
		;;
	exec:--timeout)
		return
		;;
	exec:--api)
		return
		;;
	exec:--api-key-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	exec:--api-run-id)
		return
		;;
	exec:--api-transport)
		mapfile -t COMPREPLY < <(compgen -W 'direct http2 queue' -- "$cur")
		return
		;;
	exec:--policy)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_airlock_policies)" -- "$cur")
		return
		;;
	exec:--upstream)
		return
		;;
	exec:--log-limit)
		return
		;;
	shell:--workspace | shell:-w)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	shell:--env | shell:-e)
		mapfile -t COMPREPLY < <(compgen -W "$(_airlock_envs)" -- "$cur")
		return
		;;
	shell:--provider)
		mapfile -t COMPREPLY < <(compgen -W 'native local ssh' -- "$cur")
		return
		;;
	shell:--image)
		mapfile -t COMPREPLY < <(compgen -W "$(_airlock_images)" -- "$cur")
		return
		;;
	shell:--ssh)
		return
		;;
	shell:--ssh-key)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--ssh-known-hosts)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--ssh-config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--ssh-jump)
		return
		;;
	shell:--ssh-guest)
		mapfile -t COMPREPLY < <(compgen -W 'auto never always' -- "$cur")
		return
		;;
	shell:--ssh-max-runs)
		return
		;;
	shell:--ssh-grace)
		return
		;;
	shell:--net)
		mapfile -t COMPREPLY < <(compgen -W 'none host allow=' -- "$cur")
		[ "${COMPREPLY[*]}" != allow= ] || compopt -o nospace 2>/dev/null
		return
		;;
	shell:--resolve)
		return
		;;
	shell:--agent)
		return
		;;
	shell:--on-conflict)
		mapfile -t COMPREPLY < <(compgen -W 'keep-host take-sandbox' -- "$cur")
		return
		;;
	shell:--map)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--sync-out)
		mapfile -t COMPREPLY < <(compgen -W 'changes tar' -- "$cur")
		return
		;;
	shell:--include)
		return
		;;
	shell:--exclude)
		return
		;;
	shell:--git)
		mapfile -t COMPREPLY < <(compgen -W 'none shallow full' -- "$cur")
		return
		;;
	shell:--bind-ro)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--memory)
		return
		;;
	shell:--pids)
		return
		;;
	shell:--cpus)
		return
		;;
	shell:--without)
		mapfile -t COMPREPLY < <(compgen -W 'cgroup landlock seccomp overlay' -- "$cur")
		return
		;;
	shell:--shell)
		mapfile -t COMPREPLY < <(compgen -W 'sh bash' -- "$cur")
		return
		;;
	shell:--setenv)
		return
		;;
	shell:--env-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--cli)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
		;;
	shell:--install)
		return
		;;
	shell:--timeout)
		return
		;;
	shell:--api)
		return
		;;
	shell:--api-key-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	shell:--api-run-id)
		return
		;;
	shell:--api-transport)
		mapfile -t COMPREPLY < <(compgen -W 'direct http2 queue' -- "$cur")
		return
		;;
	shell:--policy)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_airlock_policies)" -- "$cur")
		return
		;;
	shell:--upstream)
		return
		;;
	shell:--log-limit)
		return
		;;
	diff:--unified | diff:-U)
		return
		;;
	apply:--on-conflict)
		mapfile -t COMPREPLY < <(compgen -W 'keep-host take-sandbox' -- "$cur")
		return
		;;
	recover:--exclude)
		return
		;;
	prune:--older-than)
		return
		;;
	unpack:--into)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	unpack:--file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	unpack:--baseline)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	unpack:--on-conflict)
		mapfile -t COMPREPLY < <(compgen -W 'keep-host take-sandbox' -- "$cur")
		return
		;;
	unpack:--limits)
		return
		;;
	manifest:--output | manifest:-o)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	bridge:--upstream)
		return
		;;
	bridge:--credential-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	bridge:--policy)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_airlock_policies)" -- "$cur")
		return
		;;
	bridge:--listen)
		return
		;;
	bridge:--transport)
		mapfile -t COMPREPLY < <(compgen -W 'direct http2 queue' -- "$cur")
		return
		;;
	bridge:--token-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	bridge:--run-id)
		return
		;;
	policy:--policy)
		mapfile -t COMPREPLY < <(compgen -f -W "$(_airlock_policies)" -- "$cur")
		return
		;;
	policy:--header)
		return
		;;
	policy:--body-size)
		return
		;;
	serve:--listen)
		return
		;;
	serve:--mode)
		return
		;;
	serve:--tls-cert)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	serve:--tls-key)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	serve:--public-url)
		return
		;;
	serve:--host)
		return
		;;
	serve:--trust-user)
		return
		;;
	serve:--workspace-root)
		return
		;;
	serve:--managed-config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	user:--company)
		return
		;;
	user:--role)
		return
		;;
	agent:--company)
		return
		;;
	agent:--adapter)
		return
		;;
	agent:--user)
		return
		;;
	agent:--status)
		return
		;;
	project:--company)
		return
		;;
	token:--user)
		return
		;;
	token:--agent)
		return
		;;
	token:--company)
		return
		;;
	token:--expires)
		return
		;;
	token:--label)
		return
		;;
	token:--run)
		return
		;;
	image:--name)
		return
		;;
	image:--ref)
		return
		;;
	image:--without)
		mapfile -t COMPREPLY < <(compgen -W 'landlock' -- "$cur")
		return
		;;
	doctor:--ssh)
		return
		;;
	doctor:--ssh-key)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	doctor:--ssh-known-hosts)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	doctor:--ssh-config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	doctor:--ssh-jump)
		return
		;;
	esac
	case $verb in
	run) words="--workspace --env --provider --image --ssh --ssh-key --ssh-known-hosts --ssh-config --ssh-jump --ssh-guest --ssh-max-runs --ssh-grace --no-remote-base --in-place --ssh-compress --remote-sandbox --net --resolve --agent --no-preset --keep --strict --review --on-conflict --map --sync-out --include --exclude --git --bind-ro --memory --pids --cpus --without --shell --setenv --env-file --cli --install --timeout --tty --api --api-key-file --api-run-id --api-transport --policy --upstream --log-limit --json --quiet --help" ;;
	exec) words="--shell --setenv --env-file --cli --install --timeout --tty --api --api-key-file --api-run-id --api-transport --policy --upstream --log-limit --json --quiet --help $(_airlock_runs)" ;;
	shell) words="--workspace --env --provider --image --ssh --ssh-key --ssh-known-hosts --ssh-config --ssh-jump --ssh-guest --ssh-max-runs --ssh-grace --no-remote-base --in-place --ssh-compress --remote-sandbox --net --resolve --agent --no-preset --keep --strict --review --on-conflict --map --sync-out --include --exclude --git --bind-ro --memory --pids --cpus --without --shell --setenv --env-file --cli --install --timeout --tty --api --api-key-file --api-run-id --api-transport --policy --upstream --log-limit --json --quiet --help $(_airlock_runs)" ;;
	ps) words="--all --json --help" ;;
	logs) words="--follow --raw --help $(_airlock_runs)" ;;
	stop) words="--help $(_airlock_runs)" ;;
	runs) words="--waiting --json --help" ;;
	diff) words="--stat --name-only --name-status --json --unified --color --no-color --no-pager --exit-code --help $(_airlock_runs)" ;;
	apply) words="--dry-run --on-conflict --json --help $(_airlock_runs)" ;;
	discard) words="--yes --help $(_airlock_runs)" ;;
	recover) words="--no-strict --exclude --help $(_airlock_runs)" ;;
	audit) words="--json --help $(_airlock_runs)" ;;
	rm) words="--all --force --yes --help $(_airlock_runs)" ;;
	prune) words="--older-than --dry-run --yes --json --help" ;;
	unpack) words="--into --file --baseline --no-delete --strict --on-conflict --dry-run --limits --verbose --help" ;;
	manifest) words="--output --quiet --help" ;;
	env)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="create list show rm clean --force --help" ;;
		*) words="--force --help $(_airlock_envs)" ;;
		esac
		;;
	bridge) words="--upstream --credential-file --policy --listen --transport --token-file --run-id --quiet --help" ;;
	policy)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="list show check explain --policy --header --body-size --help" ;;
		*:check) mapfile -t COMPREPLY < <(compgen -f -W '--policy --header --body-size --help' -- "$cur") && return ;;
		*) words="--policy --header --body-size --help $(_airlock_policies)" ;;
		esac
		;;
	serve) words="--listen --mode --tls-cert --tls-key --public-url --host --trust-user --workspace-root --local-runs --no-recover --secrets-strict --cloud-managed --managed-config --help" ;;
	access-map) words="--json --help" ;;
	company)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="add list rm --help" ;;
		*) words="--help" ;;
		esac
		;;
	user)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="add list join leave promote demote rm --admin --company --role --help" ;;
		*) words="--admin --company --role --help" ;;
		esac
		;;
	agent)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="add list set --company --adapter --user --configure --status --help" ;;
		*) words="--company --adapter --user --configure --status --help" ;;
		esac
		;;
	project)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="add list --company --help" ;;
		*) words="--company --help" ;;
		esac
		;;
	token)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="create run list revoke rotate-seal --user --agent --company --expires --label --run --help" ;;
		*) words="--user --agent --company --expires --label --run --help" ;;
		esac
		;;
	preset)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="list show --help" ;;
		*) words="--help $(_airlock_presets)" ;;
		esac
		;;
	image)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) words="import list show verify name rm --name --ref --without --json --help" ;;
		*:import) mapfile -t COMPREPLY < <(compgen -f -W '--name --ref --without --json --help' -- "$cur") && return ;;
		*) words="--name --ref --without --json --help $(_airlock_images)" ;;
		esac
		;;
	doctor) words="--quick --json --ssh --ssh-key --ssh-known-hosts --ssh-config --ssh-jump --remote-sandbox --help" ;;
	version) words="--help" ;;
	help) words="--dump-options --help run exec shell ps logs stop runs diff apply discard recover audit rm prune unpack manifest env bridge policy serve access-map company user agent project token preset image doctor version help" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	case $verb in
	recover | manifest) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur") ;;
	esac
}
complete -F _airlock airlock
