#!/usr/bin/env bash
# Ends this instance at its job's deadline: the lease counts from when the machine ran, however long it loaded before.
# In: `deadline.sh LEFT_S GRACE_S`, seconds from now; lease.sh; VASTRUN_*; on Vast CONTAINER_ID.
# Out: deadline.lock; stop, GRACE_S before; in the end, no instance. It can only shorten the time of the lease.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
onstart=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
. "$onstart/lib.sh"
. "$onstart/key.sh"
cd "$VASTRUN_BOX"
: "${1:?seconds left}" "${2:?seconds before the end}"

# Seconds that no change of the clock moves; suspended time counts.
wait_until() { while read -r now _ </proc/uptime && ((${now%.*} < $1)); do sleep 1 9>&-; done; }

watch() {
  local now end
  exec 9>>deadline.lock
  flock -w 2 9 || exit 0
  trap '' HUP INT TERM
  read -r now _ </proc/uptime
  end=$((${now%.*} + $1))
  wait_until $((end - $2))
  write_stop time_limit
  wait_until "$end"
  until bash lease.sh end "$VASTRUN_INSTANCE" "$VASTRUN_BOX" 9>&-; do sleep 5 9>&-; done
}

if [[ ${3-} == watch ]]; then
  watch "$@"
else
  [[ ${VASTRUN_PROVIDER-} != vast ]] || take_key
  setsid --fork bash "$onstart/deadline.sh" "$1" "$2" watch </dev/null >/dev/null 2>&1
fi
