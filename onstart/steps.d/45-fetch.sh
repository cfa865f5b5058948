#!/usr/bin/env bash
# Fetches the checkpoint to continue from, where earlier runs pushed theirs to a URL.
# In: VASTRUN_FETCH (how many URLs), job.json. Out: resume/; 1 when there is none and the job needs one.
set -euo pipefail
((VASTRUN_FETCH > 0)) || exit 0
cd "$VASTRUN_BOX"
exec bash onstart/module.sh transfer.fetch
