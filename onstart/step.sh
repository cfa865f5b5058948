# One onstart step: a process group of its own, its output in the merged log, its end in run/steps.jsonl.
# In: run_step FILE; stop. Out: the step's exit code; step, run/run.log, run/steps.jsonl. Sourced by run.sh.
# shellcheck shell=bash
stop_wait_s=100 # the supervisor may need 70 s to save a checkpoint

run_step() {
  local name=${1##*/} code=0 began=$EPOCHREALTIME stopping=''
  name=${name%.sh}
  if [[ -e stop ]]; then
    stopping=$SECONDS
    step_ended "$name" 143
    return 143
  fi
  echo "$name" >.step && mv .step step
  # Not <(...): bash now and then loses the exit code of a process substitution, and wait then says -1.
  rm -f .output && mkfifo .output
  setsid bash "$1" >.output 2>&1 8>&- &
  child=$!
  exec {out}<.output
  rm .output
  copy_output "$name"
  wait "$child" || code=$?
  child=
  exec {out}<&-
  step_ended "$name" "$code"
  return "$code"
}

# One that a stop ended, or kept from its beginning, says whose stop that was.
step_ended() {
  local stop=''
  [[ -z $stopping || $2 == 0 ]] || stop=$(printf ',"stop":"%s"' "$(<stop)")
  printf '{"step":"%s","exit_code":%s,"seconds":%s%s}\n' "$1" "$2" "$(seconds_since "$began")" "$stop" >>run/steps.jsonl
}

# Returns at the end of the output, or soon after the step ended: what it left in the background may keep it open.
copy_output() {
  local line part='' last=''
  while :; do
    if IFS= read -rt 0.3 -u "$out" line; then
      log "$1" "$part$line" && part=''
    elif (($? > 128)); then
      part+=$line
      [[ -z $last ]] || break
    else
      part+=$line
      break
    fi
    heed_stop
    kill -0 "$child" 2>/dev/null || last=${last:-$SECONDS}
    [[ -z $last ]] || ((SECONDS - last < 3)) || break
  done
  [[ -z $part ]] || log "$1" "$part"
}

heed_stop() {
  if [[ ! -e stop ]]; then return 0; fi
  if [[ -z $stopping ]]; then
    stopping=$SECONDS
    kill -TERM -- "-$child" 2>/dev/null || true
  elif ((SECONDS - stopping > stop_wait_s)); then
    kill -KILL -- "-$child" 2>/dev/null || true
  fi
}

seconds_since() {
  local micros=$((${EPOCHREALTIME/./} - ${1/./}))
  printf '%d.%03d' $((micros / 1000000)) $((micros / 1000 % 1000))
}
