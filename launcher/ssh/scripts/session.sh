# Starts a command in the box's folder, with the box's own environment, and marks where its output begins.
# In: TOKEN BOX NAME=VALUE... -- COMMAND... Out: "TOKEN PID" (or "TOKEN none": no such box) on stdout and stderr.
# shellcheck shell=bash

# A session of sshd knows nothing of the container's environment, but its first process and the lease do.
# The instance's own key stays there: a command that prints its environment must not print a secret.
take() {
  local pair
  while IFS= read -rd '' pair; do
    case $pair in
      VASTRUN_*=* | LEASE_*=* | CONTAINER_ID=* | PATH=* | LD_LIBRARY_PATH=* | CUDA_HOME=* | LANG=*)
        export "${pair?}"
        ;;
    esac
  done <"$1"
}

token=$1 VASTRUN_BOX=$2 state='' pid=none
shift 2
if cd "$VASTRUN_BOX" 2>/dev/null; then
  pid=$$
  {
    take /proc/1/environ
    state=$(<lease.state)
    [[ $state =~ pid=([0-9]+) ]] && take "/proc/${BASH_REMATCH[1]}/environ"
  } 2>/dev/null
fi
export VASTRUN_BOX=$PWD
while [[ $1 != -- ]]; do
  export "${1?}"
  shift
done
shift
printf '\n%s %s\n' "$token" "$pid"
printf '\n%s %s\n' "$token" "$pid" >&2
[[ $pid == none ]] || exec "$@"
