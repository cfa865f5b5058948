#!/usr/bin/env bash
# Does one step alone, while its caller waits, and stops it when the caller is gone: for a rehearsal.
# In: the step's name; the box. Out: its exit code; run/run.log, run/steps.jsonl; of a run
# no lock, no list of outputs and no end.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
onstart=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
. "$onstart/lib.sh"
. "$onstart/environment.sh"
. "$onstart/step.sh"
cd "$VASTRUN_BOX"
mkdir -p run
trap 'write_stop stopped' TERM
load_environment

{ while kill -0 "$PPID"; do sleep 1; done; write_stop stopped; } >/dev/null 2>&1 &
watcher=$! code=0
run_step "${1:?a step}" || code=$?
kill "$watcher" 2>/dev/null || true
exit "$code"
