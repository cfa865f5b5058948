#!/usr/bin/env bash
# Arms a lease again that somebody has killed. It counts from when the launcher says that it was armed first.
# In: lease.sh; VASTRUN_*, LEASE_* and LEASE_AGE_S; on Vast CONTAINER_ID. Out: lease.state; 0 when a lease is at work.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
cd "${VASTRUN_BOX:?}"
: "${LEASE_AGE_S:?}"

. "${BASH_SOURCE[0]%/*}/key.sh"
[[ ${VASTRUN_PROVIDER-} != vast ]] || take_key
exec setsid --wait bash lease.sh
