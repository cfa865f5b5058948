#!/usr/bin/env bash
# The lease: ends this instance on its own, whatever happens to the launcher.
# In: VASTRUN_BOX, VASTRUN_INSTANCE, VASTRUN_PROVIDER, LEASE_*; on Vast also CONTAINER_ID, CONTAINER_API_KEY and
#     VASTRUN_SSH_KEY, the launcher's public key without its type.
#     LEASE_AGE_S, where somebody knows: since when it was armed. Else lease.state says so, after a restart.
# Out: lease.state, lease.log; in the end, no instance.
# `lease.sh` arms it in the background, once; `lease.sh end INSTANCE BOX` ends that instance now.
# No -e: it outlives its own failures.
set -uo pipefail

# now = seconds that no change of the clock moves; suspended time counts.
tick() { if read -r now _ </proc/uptime; then now=${now%.*}; else printf -v now '%(%s)T' -1; fi 2>/dev/null; }

# found = the processes of the instance $1, or of the run in the folder $1, and all below them. Slots of a held machine are
# instances of their own, and say which one holds them. What was $killed has no environment while it gives its memory back.
find_all() {
  local dir pid stat env parent=() grown=1 IFS=$'\n' LC_ALL=C
  found=()
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/} stat='' env=()
    { read -rd '' stat <"$dir/stat"; mapfile -td '' env <"$dir/environ"; } 2>/dev/null
    [[ $pid != "$BASHPID" && $stat =~ .*\)\ [^Z]\ ([0-9]+) ]] || continue
    parent[pid]=${BASH_REMATCH[1]}
    [[ $IFS${env[*]-VASTRUN_$pid}$IFS =~ ${IFS}VASTRUN_((INSTANCE|HELD|RUN)="$1"|$killed)$IFS ]] && found[pid]=1
  done
  while ((grown)); do
    grown=0
    for pid in "${!parent[@]}"; do
      [[ ! ${found[pid]-} && ${found[parent[pid]]-} ]] && found[pid]=1 grown=1
    done
  done
}

# Stops before it kills, so that nothing forks away; done when two looks in a row found nothing. What no signal ends, since
# it hangs in a driver say, is left after 200 looks.
kill_all() {
  local found killed=- looks=0 quiet=0 IFS='|'
  while ((quiet++ < 2 && looks++ < 200)); do
    find_all "$1"
    ((${#found[@]})) || continue
    kill -STOP "${!found[@]}"; find_all "$1"; kill -KILL "${!found[@]}"
    killed+="|${!found[*]}" quiet=0; sleep 0.05
  done 2>/dev/null
}

# vast METHOD: what Vast answers about this instance; asks with whatever there is, the key in no argument.
vast() {
  local url=${VAST_URL:-https://console.vast.ai}/api/v0/instances/${CONTAINER_ID-}/
  curl -fsm 15 -X "$1" -K - "$url" <<<"header = \"Authorization: Bearer ${CONTAINER_API_KEY-}\"" ||
    wget -qO- -t 1 -T 15 --method="$1" -i - <<<"$url?api_key=${CONTAINER_API_KEY-}" ||
    python3 -c 'import os, sys, urllib.request as u
print(u.urlopen(u.Request(sys.argv[2], None, {"Authorization": "Bearer " + os.environ["CONTAINER_API_KEY"]},
method=sys.argv[1]), None, 15).read())' "$1" "$url"
} 2>/dev/null

# Vast has agreed before the instance is gone: asked again until this process is ended with it.
end_instance() {
  if [[ ${VASTRUN_PROVIDER-} == vast ]]; then vast DELETE; return 1; fi
  kill_all "$VASTRUN_INSTANCE"
  cd / && chmod -R u+rwX "$VASTRUN_BOX"; rm -rf "$VASTRUN_BOX"
}

# The launcher's key is in the home's authorized_keys, and sshd takes it from there. Some images and hosts leave the file,
# at once or hours later, to other users or writable for them: then sshd refuses it. No link is followed.
let_in() {
  local file=.ssh/authorized_keys key="ssh-ed25519 ${VASTRUN_SSH_KEY-}"
  cd .. && [[ ${VASTRUN_SSH_KEY-} && ! -L .ssh && ! -L $file ]] || return
  umask 77
  mkdir -p .ssh
  grep -qs "^$key" $file || printf '\n%s\n' "$key" >>$file
  chown -h "$EUID" . .ssh $file
  chmod go-w . .ssh $file
}

tell() {
  printf '%s\n' "state=$state" "pid=$BASHPID" "armed_at=$armed_at" "life=$LEASE_LIFE_S" "ends_at=$((armed_at + limit))" "reason=$reason" >.lease &&
    mv .lease lease.state
  printf '%(%s)T %s: %s\n' -1 "$state" "$reason" >&9
}

shorten() { if (($1 < limit)); then limit=$1 reason=$2; tell; fi; }

bury_run() {
  kill_all "$VASTRUN_BOX/run"
  timeout 60 bash onstart/run.sh bury 9>&-
  [[ -e run/exit ]] || { echo 137 >run/.exit && mv run/.exit run/exit; }
}

watch() {
  local age limit=$LEASE_LIFE_S reason=$LEASE_LIFE_CAUSE over='' home='' state=proving pid=
  [[ ${VASTRUN_PROVIDER-} == vast ]] || state=armed
  tell
  while tick; age=$((now - start)); ((age < limit)) && [[ -d $VASTRUN_BOX ]]; do
    # In the background, one at a time: a disk that hangs must not keep the lease from ending the box.
    ((pid && age % 10)) || kill -0 "$pid" || { let_in 9>&- & pid=$!; } 2>/dev/null
    # The instance's key works when its own row comes back.
    [[ $state == armed ]] || ((age % 3)) || [[ $(vast GET) != *'"instances":'*'{'* ]] || { state=armed; tell; }
    # Data may arrive for long.
    [[ -e run.lock ]] || ((age < LEASE_SHIP_S)) || [[ $(find inbox/data -mmin -15) ]] || shorten "$age" "nothing started"
    [[ -e stop ]] || ((age < LEASE_LIFE_S - LEASE_GRACE_S)) || { echo "$LEASE_LIFE_CAUSE" >.stop; ln .stop stop; }
    [[ -e run.lock ]] && flock -ns run.lock [ ! -e run/exit ] && bury_run
    [[ -e run/exit && ! $over ]] && over=1 && shorten $((age + LEASE_COLLECT_S)) "nothing was collected"
    [[ -e collected && ! $home ]] && home=1 && shorten $((age + 60)) "all is collected"
    sleep 1 9>&-
  done
  state=ending; tell
  until end_instance; do sleep 5; done
}

arm() {
  : "$LEASE_SHIP_S $LEASE_LIFE_S $LEASE_LIFE_CAUSE $LEASE_GRACE_S $LEASE_COLLECT_S"
  mkdir -p "$VASTRUN_BOX" && cd "$VASTRUN_BOX" && exec 9>>lease.log || exit 1
  # 1: one is at work.
  flock -w 2 9 || exit $(($? > 1))
  printf -v armed_at '%(%s)T' -1
  tick; age=0
  # Whoever can write this file could also restart the lease: an invalid or future moment counts as now.
  [[ $(cat lease.state 2>&1) =~ armed_at=([12][0-9]{9}) ]] && age=$((armed_at - BASH_REMATCH[1]))
  age=${LEASE_AGE_S:-$((age > 0 ? age : 0))}
  ((start = now - age, armed_at -= age))
  trap '' HUP INT TERM
  watch </dev/null >/dev/null 2>&9 &
  for _ in {1..50}; do grep -qs "pid=$!" lease.state && break; sleep 0.02; done
}

if [[ ${1-} == end ]]; then VASTRUN_INSTANCE=${2:?} VASTRUN_BOX=${3:?}; end_instance; else arm; fi
