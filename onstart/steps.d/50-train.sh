#!/usr/bin/env bash
# Trains: the supervisor starts the ranks, watches them and writes the evidence. A held machine watches its slots.
# In: VASTRUN_KIND, job.json, code/, data/. Out: the supervisor's exit code, run/outcome.json.
set -euo pipefail
if [[ $VASTRUN_KIND == hold ]]; then
  exec bash onstart/module.sh holding hold
fi
exec bash onstart/module.sh supervise
