#!/usr/bin/env bash
# Arms a lease again that somebody has killed. It counts from when the launcher says that it was armed first.
# `again` goes on with a run that was buried, and arms a lease in the place of the one that waits for its outputs.
# In: lease.sh; VASTRUN_*, LEASE_* and LEASE_AGE_S; on Vast CONTAINER_ID. Out: lease.state; 0 when a lease is at work.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
cd "${VASTRUN_BOX:?}"
: "${LEASE_AGE_S:?}"

. "${BASH_SOURCE[0]%/*}/key.sh"
[[ ${VASTRUN_PROVIDER-} != vast ]] || take_key
if [[ ${1-} == again ]]; then
  bash onstart/run.sh again
  trap '' HUP # between these two lines there is no lease
  flock -n lease.log true || kill -KILL "$(sed -n 's/^pid=//p' lease.state)"
fi
# A life that is shorter than the container's own, since the price has risen, is told as that one, begun earlier: it ends at
# the same moment, and lease.state says so to the lease that a restart of the container starts.
life=$(sed -n 's/^life=\([0-9]\{1,9\}\)$/\1/p' lease.state 2>/dev/null || true)
if ((${life:-0} > LEASE_LIFE_S)); then ((LEASE_AGE_S += life - LEASE_LIFE_S, LEASE_LIFE_S = life)); fi
exec setsid --wait bash lease.sh
