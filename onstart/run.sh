#!/usr/bin/env bash
# Runs the steps of a run, one after the other, and leaves its exit code in run/exit (docs/box.md).
# In: `start` the steps in the background, once; `stop CAUSE` them; `bury` a run that was killed: the lease does.
# Out: run.lock, step; run/run.log, run/steps.jsonl, run/manifest.json, run/exit.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
onstart=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
. "$onstart/lib.sh"
. "$onstart/environment.sh"
. "$onstart/step.sh"
cd "$VASTRUN_BOX"

# Returns once the steps run.
start() {
  [[ ! -e run.lock ]] || return 0
  setsid --fork bash "$onstart/run.sh" main </dev/null >/dev/null 2>>run.err
  for _ in {1..100}; do [[ ! -e run.lock ]] || return 0; sleep 0.05; done
  cat run.err >&2
  return 1
}

main() {
  local name early_from code=0
  claim
  trap finish EXIT
  trap 'write_stop "${VASTRUN_TERM:-stopped}"' TERM
  load_environment || exit 78
  early_from=$(first_after_installing)
  for name in $(step_names); do
    # A held machine has no job: it is checked, and gets the packages that the trainings of its slots need.
    [[ $VASTRUN_KIND != hold || $name =~ ^(10|25|50)- ]] || continue
    [[ ${VASTRUN_PRELOAD:-0} == 0 || $name < $early_from || -n ${early_step-} ]] || begin_early 50-train
    run_step "$name" || { code=$?; break; }
  done
  exit "$code"
}

# The steps of a box and those of the job's program, by their numbers.
step_names() {
  local names=("$onstart"/steps.d/[0-9][0-9]-*.sh)
  names=("${names[@]##*/}")
  # shellcheck disable=SC2086 # names without blanks
  printf '%s\n' "${names[@]%.sh}" ${VASTRUN_PREPARE-} | sort
}

# First step at which the program may be loaded: its packages are installed and the user's code is in place.
first_after_installing() {
  if keeps_python && [[ $VASTRUN_SETUP == 0 && ! -e code.tar.gz ]]; then echo 10; else echo 31; fi
}

# The lock has its name only once it is held, and is held for as long as this process lives.
claim() {
  local lock=.run.lock.$$
  mkdir -p run
  exec 8>"$lock"
  flock 8
  ln "$lock" run.lock 2>/dev/null || { rm "$lock"; exit 0; }
  rm "$lock"
}

bury() {
  flock -n run.lock true
  log lease "run.sh was killed; the rest of the run was killed after it"
  trap finish EXIT
  exit 137
}

# On every path: the list of what can be collected, then, last, the exit code.
finish() {
  local code=$?
  set +e
  trap - EXIT TERM
  [[ -z ${child-} ]] || kill -KILL -- "-$child"
  [[ -z ${early-} ]] || kill -KILL -- "-$early"
  rm -rf inbox/secrets.env .job tmp cache # on a full disk this makes room for the evidence
  bash onstart/module.sh transfer.manifest >run.err 2>&1 || log run.sh "no manifest: $(tail -n 1 run.err)"
  echo "$code" >run/.exit && mv run/.exit run/exit
}

case ${1-} in
  start | main | bury) "$@" ;;
  stop) write_stop "${2:?a cause}" ;;
  *) echo "usage: run.sh start | stop CAUSE" >&2; exit 2 ;;
esac
