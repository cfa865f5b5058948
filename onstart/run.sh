#!/usr/bin/env bash
# Runs the steps of a run, one after the other, and leaves its exit code in run/exit (docs/box.md).
# `run.sh start` starts them in the background, once; `run.sh stop CAUSE` asks them to end.
# In: the unpacked bundle, inbox/secrets.env, stop. Out: run.lock, step, and the log, steps, manifest and exit in run/.
set -euo pipefail
onstart=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
# shellcheck source=onstart/lib.sh
. "$onstart/lib.sh"
# shellcheck source=onstart/step.sh
. "$onstart/step.sh"
cd "$VASTRUN_BOX"

start() {
  local tries=0
  [[ -e run.lock ]] || setsid --fork bash "$onstart/run.sh" main </dev/null >/dev/null 2>>run.err
  until [[ -e run.lock ]]; do
    ((tries++ < 100)) || { cat run.err >&2; exit 1; }
    sleep 0.05
  done
}

main() {
  local file code=0
  claim
  trap finish EXIT
  trap 'write_stop stopped' TERM
  load_environment
  for file in "$onstart"/steps.d/[0-9][0-9]-*.sh; do
    run_step "$file" || { code=$?; break; }
  done
  exit "$code"
}

# The lock has its name only once it is held, and for as long as this process lives.
claim() {
  exec 8>".run.lock.$$"
  flock 8
  mkdir -p run
  ln ".run.lock.$$" run.lock 2>/dev/null || { rm ".run.lock.$$"; exit 0; }
  rm ".run.lock.$$"
}

load_environment() {
  if [[ -e inbox/secrets.env ]]; then
    set -a
    # shellcheck source=/dev/null
    . inbox/secrets.env
    set +a
    rm inbox/secrets.env
  fi
  if ! PYTHONPATH=pkg "$VASTRUN_PYTHON" -m trainer.jobfile variables >.job 2>run.err; then
    log run.sh "cannot read job.json with $VASTRUN_PYTHON: $(tail -n 1 run.err)"
    exit 1
  fi
  while IFS= read -rd '' pair; do export "${pair?}"; done <.job
  box_environment
  if [[ ${VASTRUN_PROVIDER-} == local && $VASTRUN_SETUP != 0 ]] && ! layer_python 2>run.err; then
    log run.sh "cannot make a Python for the set-up commands: $(tail -n 1 run.err)"
    exit 1
  fi
}

# On every path: the list of what can be collected, then the exit code, last.
finish() {
  local code=$?
  trap - EXIT TERM
  [[ -z ${child-} ]] || kill -KILL -- "-$child" || true
  rm -rf inbox/secrets.env .job tmp cache # on a full disk this makes room for the evidence
  "$VASTRUN_PYTHON" -m trainer.manifest >run.err 2>&1 || log run.sh "no manifest: $(tail -n 1 run.err)"
  echo "$code" >run/.exit
  mv run/.exit run/exit
}

case ${1-} in
  start) start ;;
  main) main ;;
  stop) write_stop "${2:?a cause}" ;;
  *) echo "usage: run.sh start | stop CAUSE" >&2; exit 2 ;;
esac
