#!/usr/bin/env bash
# Looks at the onboard trainer's data before anybody trains: layouts, grids, and values of a few samples.
# In: VASTRUN_KIND, job.json, data/. Out: what there is to train on and to test on; 1 after saying what is wrong.
set -euo pipefail
if [[ $VASTRUN_KIND != train ]]; then
  echo "the job's command checks its own data"
  exit 0
fi
exec bash onstart/trainer.sh data check --quick
