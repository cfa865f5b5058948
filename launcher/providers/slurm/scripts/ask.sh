# Has the job of a box run a command, from any computer that has the shared disk; waits for its end.
# In: TAKE_S LIMIT_S COMMAND; the box as the working folder. Out: a line: `ended CODE`, `late`, or `silent` when nobody
#     took it in TAKE_S, or who took it lives no more; the command's own output follows, and its errors on stderr.
# shellcheck shell=bash
export LC_ALL=C
most=1200000
name=$BASHPID-${EPOCHREALTIME/./}-$RANDOM
ask=.asks/$name
state=''

say() {
  echo "$1"
  head -c "$most" "$ask/out" 2>/dev/null
  head -c "$most" "$ask/err" >&2 2>/dev/null
  rm -rf "$ask"
  exit 0
}

# Whoever serves the box holds this lock for as long as it lives. There are shared disks on which each computer has locks of
# its own: one that was never seen to be held says nothing.
is_held() { [[ -e .asks/served ]] && ! flock -n .asks/served true; }

# until_state PATTERN SECONDS
until_state() {
  local until=$((${EPOCHREALTIME/./} + $2 * 1000000)) looked_at=$SECONDS forsaken=''
  # shellcheck disable=SC2053
  until read -r state <"$ask/state" && [[ $state == $1 ]]; do
    ((${EPOCHREALTIME/./} < until)) || return 1
    [[ -d $ask && ! $forsaken ]] || return 1
    # What it wrote last is read once more.
    if [[ $was_held && $state == taken ]] && ((SECONDS > looked_at)); then
      looked_at=$SECONDS
      is_held || forsaken=1
    fi
    read -rt 0.05 -u "$pause"
  done 2>/dev/null
  return 0
}

was_held=''
is_held 2>/dev/null && was_held=1
mkdir -p "$ask" || exit 1
for file in state out err; do : >"$ask/$file"; done
mkfifo "$ask/pause" && exec {pause}<>"$ask/pause" && rm "$ask/pause"
printf -v text %q "$3"
exec 9>>.asks/lock
flock -w "$1" 9 || say silent
printf '%s %s %s %s\n' "$name" "$2" "${#text}" "$text" >.asks/order
until_state '*' "$1" || say silent
exec 9>&-
until_state '@(ended|late)*' "$((${2%.*} + 15))" || say silent
say "$state"
