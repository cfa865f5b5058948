# One onstart step: a process group of its own, its output in the merged log, its end in run/steps.jsonl.
# In: run_step NAME; begin_early NAME; stop. Out: the step's exit code; step, run/run.log, run/steps.jsonl. Sourced by
# run.sh.
# shellcheck shell=bash
stop_wait_s=100 # the supervisor may need 70 s to save a checkpoint
last_line_most=300
bar_most=2000

run_step() {
  local name=$1 code=0 began=$EPOCHREALTIME stopping='' last_line=''
  if [[ -e stop ]]; then
    stopping=$SECONDS
    step_ended "$name" 143
    return 143
  fi
  echo "$name" >.step && mv .step step
  take_turn "$name" || begin "$name"
  copy_output "$name"
  wait "$child" 2>/dev/null || code=$?
  child=
  exec {out}<&-
  step_ended "$name" "$code"
  return "$code"
}

# begin NAME [INPUT]: starts its script, or the program's own step, as $child; its output is read from $out.
begin() {
  local script=("onstart/steps.d/$1.sh")
  [[ -e ${script[0]} ]] || script=(onstart/module.sh boot.prepare "$1")
  # Not <(...): bash now and then loses the exit code of a process substitution, and wait then says -1.
  rm -f .output && mkfifo .output
  # Unbuffered, so that the error of a Python program is the last line of the log, after its earlier output.
  PYTHONUNBUFFERED=1 setsid bash "${script[@]}" <"${2:-/dev/null}" >.output 2>&1 8>&- &
  child=$!
  exec {out}<.output
  rm .output
}

# begin_early NAME: starts a step before its turn. It loads what it needs, waits for a line on its input, and ends with
# this process until it has that line.
begin_early() {
  early_step=$1
  rm -f .turn && mkfifo .turn
  exec {turn}<>.turn
  VASTRUN_TURN=$$ begin "$1" .turn
  rm .turn
  early=$child early_out=$out child=
}

# take_turn NAME: lets a step go on that was started early; 1 when this one was not, or has ended.
take_turn() {
  [[ -n ${early-} && $early_step == "$1" ]] || return 1
  child=$early out=$early_out early=
  if kill -0 "$child" 2>/dev/null; then
    echo >&"$turn"
    exec {turn}>&-
  else
    exec {turn}>&- {out}<&-
    return 1
  fi
}

# A step that a stop ended or prevented reports whose stop it was; a failed one reports its last line.
step_ended() {
  local why=''
  if [[ $2 == 0 ]]; then
    :
  elif [[ -n $stopping ]]; then
    why=$(printf ',"stop":"%s"' "$(<stop)")
  elif [[ -n $last_line ]]; then
    why=$(printf ',"last_line":"%s"' "$(json_text "$last_line")")
  fi
  printf '{"step":"%s","exit_code":%s,"seconds":%s%s}\n' "$1" "$2" "$(seconds_since "$began")" "$why" >>run/steps.jsonl
}

# Returns at the end of the output, or soon after the step ended: what it left in the background may keep it open.
copy_output() {
  local line part='' last=''
  while :; do
    if IFS= read -rt 0.3 -u "$out" line; then
      said "$1" "$part$line" && part=''
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
  [[ -z $part ]] || said "$1" "$part"
}

said() {
  log "$1" "$2"
  [[ -z ${2//[[:space:]]/} ]] || last_line=$2
}

# json_text TEXT: its beginning, between the quotes of JSON; of a bar of progress its last state. That is looked for near
# the end alone: bash compares the whole of a text once more for each of its characters, and a line may have a million.
json_text() {
  local text=$1 end=${1: -bar_most} escape='\u001b' quote='\"' backslash=\\\\
  end=${end:-$text}
  end=${end%$'\r'}
  [[ $end != *$'\r'* ]] || text=${end##*$'\r'}
  text=${text:0:last_line_most}
  text=${text%$'\r'}
  text=${text//\\/"$backslash"}
  text=${text//\"/"$quote"}
  text=${text//$'\e'/"$escape"}
  printf '%s' "${text//[[:cntrl:]]/ }"
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
