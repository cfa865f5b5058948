#!/usr/bin/env bash
# Lets the ranks talk before they train: a timed all-reduce, in the first way that works on this machine.
# In: job.json, VASTRUN_RANKS, VASTRUN_GPUS, VASTRUN_SETUP. Out: a line for each way; run/preflight.json with the
# one that works; 1 when there is none, 78 when the image has no torch that can.
set -euo pipefail
exec bash onstart/module.sh boot.preflight comm
