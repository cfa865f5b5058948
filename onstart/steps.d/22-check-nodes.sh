#!/usr/bin/env bash
# Lets the nodes of a run talk before anything is fetched: a timed all-reduce between them, by one rank of each.
# In: VASTRUN_LINK_MBPS, the least that it must reach; not set or 0: nothing is tried. VASTRUN_NODES, VASTRUN_NODE,
# VASTRUN_RENDEZVOUS, VASTRUN_GPUS. Out: a line; 1 when they cannot talk, or too slowly.
set -euo pipefail
[[ ${VASTRUN_LINK_MBPS:-0} != 0 ]] || exit 0
exec bash onstart/module.sh boot.preflight link
