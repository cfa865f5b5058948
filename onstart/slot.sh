#!/usr/bin/env bash
# Runs a command in a slot of a held machine: in its folder, with its environment, on its cores.
# In: NAME COMMAND; slots/NAME/slot.env. Out: the command's own; 113 where there is no such slot.
set -uo pipefail
slot=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)/slots/${1:?a slot}
none() { echo "there is no slot $1" >&2; exit 113; }
[[ -r $slot/slot.env ]] || none "$1"
cd "$slot" || none "$1"

# What the machine's own box has is not the slot's.
for name in ${!VASTRUN_@} ${!LEASE_@}; do unset "$name"; done
# shellcheck source=/dev/null
. "$slot/slot.env" || none "$1"

if command -v taskset >/dev/null && [[ -n ${VASTRUN_CORES-} ]]; then exec taskset -c "$VASTRUN_CORES" bash -c "$2"; fi
exec bash -c "$2"
