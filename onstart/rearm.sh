#!/usr/bin/env bash
# Arms a lease again that somebody has killed. It counts from when the launcher says that it was armed first.
# In: lease.sh; VASTRUN_*, LEASE_* and LEASE_AGE_S; on Vast CONTAINER_ID. Out: lease.state; 0 when a lease is at work.
set -euo pipefail
cd "${VASTRUN_BOX:?}"
: "${LEASE_AGE_S:?}"

# Of a session, sshd has taken away the instance's own key; the container's first process, or one above this, has it.
take_key() {
  local pid=$$ pair stat
  while ((pid > 0)) && [[ -z ${CONTAINER_API_KEY-} ]]; do
    while IFS= read -rd '' pair; do
      case $pair in CONTAINER_API_KEY=* | VAST_URL=*) export "${pair?}" ;; esac
    done <"/proc/$pid/environ"
    stat=$(<"/proc/$pid/stat")
    read -r _ pid _ <<<"${stat##*) }"
  done 2>/dev/null
}

[[ ${VASTRUN_PROVIDER-} != vast ]] || take_key
exec setsid --wait bash lease.sh
