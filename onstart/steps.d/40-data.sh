#!/usr/bin/env bash
# Makes the onboard trainer's data set on as many cores as it is worth; there is nothing to do when it is there already.
# What set-up commands installed is looked at first.
# In: VASTRUN_KIND, VASTRUN_SETUP, job.json. Out: data/; 78 when the onboard trainer does not work with the torch there.
set -euo pipefail
if [[ $VASTRUN_KIND != train ]]; then
  echo "the job's command provides its own data"
  exit 0
fi
if ((VASTRUN_SETUP > 0)); then bash onstart/trainer.sh boot.preflight versions; fi
exec bash onstart/trainer.sh data generate --jobs auto
