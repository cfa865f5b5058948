# Runs in a job, for as long as its box exists: keeps the lease at work, and runs what the launcher asks for (ask.sh).
# In: VASTRUN_BOX, VASTRUN_*, LEASE_*; lease.sh; .asks/order: a line of NAME LIMIT_S LENGTH COMMAND, the command quoted.
# Out: .asks/NAME/state: `taken`, then `ended CODE` or `late`; .asks/NAME/out and err; a lock on .asks/served while it lives.
# The files are there before, and are written in place: an NFS client sees at once what an open file has become, and only
# after a while that a name is new.
# shellcheck shell=bash
set -m # what is started here heeds Ctrl-C
cd "$VASTRUN_BOX" || exit 1
mkdir -p .asks && exec 8>>.asks/served && flock -n 8
: >>.asks/order
mkfifo .pause && exec {pause}<>.pause && rm .pause
last='' looked_at=0 armed_at=$SECONDS
trap : TERM # which Slurm sends to every process of a job: what is asked for is answered until its end

answer() {
  local code=0 began=$EPOCHREALTIME state
  echo taken >".asks/$1/state"
  timeout -s KILL "$2" bash -c "$3" >".asks/$1/out" 2>".asks/$1/err" || code=$?
  state="ended $code"
  ((code != 137 || (${EPOCHREALTIME/./} - ${began/./}) / 1000 < $(milliseconds "$2"))) || state=late
  echo "$state" >".asks/$1/state"
}

milliseconds() { LC_ALL=C printf '%.0f' "${1}e3"; }

take_order() {
  local LC_ALL=C name='' limit length text command
  IFS=' ' read -r name limit length text 2>/dev/null <.asks/order || return 0
  # What was written by half is read again.
  [[ $name && $name != "$last" && ${#text} == "$length" && -d .asks/$name ]] || return 0
  last=$name
  eval "command=$text"
  answer "$name" "$limit" "$command" </dev/null >/dev/null 2>&1 8>&- &
}

# One that was killed is started again, and counts on.
keep_lease() {
  ((SECONDS - looked_at >= 5)) || return 0
  looked_at=$SECONDS
  if flock -n lease.log true; then LEASE_AGE_S=$((SECONDS - armed_at)) bash lease.sh 8>&-; fi 2>/dev/null
}

bash lease.sh 8>&-
while [[ -d $VASTRUN_BOX ]]; do
  take_order
  keep_lease
  read -rt 0.1 -u "$pause"
done
