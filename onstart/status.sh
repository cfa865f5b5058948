#!/usr/bin/env bash
# One line of JSON: how the box stands (docs/box.md). Fast: no Python, few processes.
# In: the box. Out: the line on stdout.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/lib.sh"
cd "$VASTRUN_BOX"

# Whether the process that locked $1 lives.
held() { ! flock -ns "$1" true; }

box_state() {
  if [[ -e run/exit ]]; then echo ended
  elif [[ ! -e run.lock ]]; then echo idle
  elif held run.lock; then echo running
  elif [[ -e run/exit ]]; then echo ended
  else echo dead
  fi
}

read_lease() {
  local key value
  lease=none ends_at=null
  [[ -e lease.state ]] || return 0
  while IFS='=' read -r key value; do
    case $key in state) lease=$value ;; ends_at) ends_at=$value ;; esac
  done <lease.state
  held lease.log || lease=dead
}

# MiB into the box and out of it by its interfaces, without the loopback.
read_traffic() {
  local name counters received=0 sent=0
  received_mb=0 sent_mb=0
  [[ -r /proc/net/dev ]] || return 0
  while IFS=: read -r name counters; do
    read -ra counters <<<"$counters"
    [[ ${name// /} == lo || ${#counters[@]} -lt 9 ]] || received=$((received + counters[0])) sent=$((sent + counters[8]))
  done </proc/net/dev
  received_mb=$((received >> 20)) sent_mb=$((sent >> 20))
}

content() { if [[ -s $1 ]]; then printf '%s' "$(<"$1")"; else printf '%s' "$2"; fi; }

read_lease
read -r blocks block_size < <(stat -f -c '%a %S' .)
printf '{"now":%s,"box":"%s","exit_code":%s,"lease":"%s","lease_ends_at":%s,"onstart_step":"%s",' \
  "${EPOCHREALTIME:0:14}" "$(box_state)" "$(content run/exit null)" "$lease" "$ends_at" "$(content step '')"
read_traffic
printf '"log_bytes":%s,"free_mb":%s,"received_mb":%s,"sent_mb":%s,"supervisor":%s}\n' \
  "$(if [[ -e run/run.log ]]; then stat -c %s run/run.log; else echo 0; fi)" \
  $((blocks * block_size / 1048576)) $received_mb $sent_mb "$(content run/status.json null)"
