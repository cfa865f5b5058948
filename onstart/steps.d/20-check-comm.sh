#!/usr/bin/env bash
# Lets the ranks talk before they train: a timed all-reduce, with its bandwidth and a check of the sum.
# In: VASTRUN_KIND, VASTRUN_RANKS. Out: one line; 1 when the ranks cannot talk.
set -euo pipefail
if [[ $VASTRUN_KIND == command && $VASTRUN_RANKS == 1 ]]; then
  echo "one rank: nobody to talk to"
  exit 0
fi
exec "$VASTRUN_PYTHON" -m trainer.preflight comm --ranks "$VASTRUN_RANKS"
