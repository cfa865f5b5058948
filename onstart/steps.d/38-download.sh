#!/usr/bin/env bash
# Downloads the files of the job's `data:` to the data folder, before the ranks start.
# In: VASTRUN_DOWNLOADS (how many files), job.json, VASTRUN_SHARED_DATA on a held machine. Out: data/; an exit code of
# vastrun/contract/data_files.py after saying what is wrong.
set -euo pipefail
((${VASTRUN_DOWNLOADS:-0} > 0)) || exit 0
exec bash onstart/module.sh transfer.data_files
