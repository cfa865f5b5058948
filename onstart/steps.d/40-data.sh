#!/usr/bin/env bash
# Makes the onboard trainer's data set on as many cores as it is worth; there is nothing to do when it is there already.
# In: VASTRUN_KIND, job.json. Out: data/.
set -euo pipefail
if [[ $VASTRUN_KIND != train ]]; then
  echo "the job's command provides its own data"
  exit 0
fi
exec bash onstart/trainer.sh data generate --jobs auto
