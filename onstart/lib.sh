# The box, as the onstart scripts see it: where it is, its Python, its log, its stop file.
# In: VASTRUN_BOX, or this file's place. Out: VASTRUN_BOX, VASTRUN_PYTHON; functions log, write_stop.
# shellcheck shell=bash
unset LC_ALL
export LC_NUMERIC=C # EPOCHREALTIME with a dot
export VASTRUN_BOX=${VASTRUN_BOX:-$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)}
export VASTRUN_PYTHON=${VASTRUN_PYTHON:-python3}

# log SOURCE TEXT: one write of one whole line, so that other writers of the log cannot cut into it.
log() { printf '%s %s %s\n' "${EPOCHREALTIME:0:14}" "$1" "$2" >>"$VASTRUN_BOX/run/run.log"; }

# write_stop CAUSE: the first who writes wins.
write_stop() {
  printf '%s\n' "$1" >"$VASTRUN_BOX/.stop.$$"
  ln "$VASTRUN_BOX/.stop.$$" "$VASTRUN_BOX/stop" 2>/dev/null || true
  rm "$VASTRUN_BOX/.stop.$$"
}
