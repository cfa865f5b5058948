#!/usr/bin/env bash
# Evaluates the newest checkpoint alone, as its training did at its end. No step of a run: a rehearsal asks for it.
# In: VASTRUN_KIND, run/checkpoints/, data/. Out: run/report/; 1 after saying what is wrong.
set -euo pipefail
if [[ $VASTRUN_KIND != train ]]; then
  echo "the job's command does its own evaluation"
  exit 0
fi
exec bash onstart/trainer.sh evaluation
