# The batch script of a job: makes a box for each of its nodes on the shared disk, serves them, and hands Slurm's signals on
# to the training.
# In: folder, instances, labels, lease, server, seconds, cores, environment, around: set by the lines before these; SLURM_*.
# Out: the boxes; in that of node 0, with several, .rendezvous: HOST:PORT; 0 once their leases have ended them. USR1 ends
#     them at once; TERM, which Slurm sends before it takes the nodes back, has the training save, and leaves the boxes to
#     be collected.
# shellcheck shell=bash disable=SC2154
set -m # what is started here heeds Ctrl-C
umask 077
nodes=${#instances[@]}

# A training takes Slurm's variables for orders: some frameworks start their ranks by them.
forget_slurm() {
  local name
  for name in ${!SLURM_@}; do
    [[ $name =~ ^SLURM_(CONF|CLUSTER_NAME|JOB_ID|JOB_NODELIST|JOB_PARTITION|JOB_GPUS|NODEID)$ ]] || unset "$name"
  done
}

make_boxes() {
  local instance
  for instance in "${instances[@]}"; do
    mkdir "$folder/$instance" || return
    printf '%s' "$server" >"$folder/$instance/.server.sh"
    printf '%s' "$lease" >"$folder/$instance/lease.sh"
  done
}

is_free() { ! { : <"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null; }

# Where the other nodes reach this one: a port that is free, as are the two after it. None is one that the kernel hands
# out: such a one may be taken until the nodes are there.
choose_rendezvous() {
  local port
  until port=$((20000 + RANDOM % 4000 * 3)) && is_free $port && is_free $((port + 1)) && is_free $((port + 2)); do :; done
  echo "$(hostname):$port" >"$folder/${instances[0]}/.rendezvous"
}

# serve NODE: the box of that node, for as long as it exists. Runs on it.
serve() {
  cd "$folder/${instances[$1]}" || exit
  prepare
  forget_slurm
  exec env "${environment[@]}" VASTRUN_LABEL="${labels[$1]}" VASTRUN_INSTANCE="${instances[$1]}" VASTRUN_BOX="$PWD" \
    "${around[@]}" bash .server.sh </dev/null >>.server.log 2>&1
}

# Everything that the box started, wherever it hid; the folder stays.
kill_box() { cd "$folder/${instances[$1]}" && bash lease.sh end "${instances[$1]}" "$PWD/.none"; } 2>/dev/null

# on_all FUNCTION: does that with the number of each node, on it.
on_all() {
  local script=$folder/${instances[0]}/.job
  if ((nodes == 1)); then
    "$1" 0
    return
  fi
  { declare -p folder instances labels environment around && declare -f forget_slurm prepare serve kill_box; } >"$script.$1"
  # shellcheck disable=SC2016 # the node's own shell expands them
  srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$cores" --cpu-bind=none \
    --kill-on-bad-exit=0 --wait=0 bash -c '. "$1" && "$2" "$SLURM_NODEID"' job "$script.$1" "$1"
}

end_now() {
  on_all kill_box
  exit 0
}

# is_over INSTANCE: nothing trains there any more.
is_over() { [[ ! -e $folder/$1/run.lock || -e $folder/$1/run/exit ]]; }

# Slurm does not say why it ends us. Near the job's end it is the time limit, which the site may have changed since.
save_and_end() {
  local instance cause=preempted left
  left=$(timeout 5 squeue --noheader --jobs="$SLURM_JOB_ID" --format=%L) || left=$(((seconds - SECONDS) / 60)):00
  [[ ! $left =~ ^(INVALID|0?[0-2]:[0-9]+)$ ]] || cause=time_limit
  for instance in "${instances[@]}"; do
    is_over "$instance" || (cd "$folder/$instance" && echo "$cause" >.stop.job && ln .stop.job stop)
  done
  for instance in "${instances[@]}"; do
    until is_over "$instance"; do sleep 0.2; done
  done
  on_all kill_box
  exit 0
} 2>/dev/null

make_boxes || exit 1
((nodes == 1)) || choose_rendezvous
trap end_now USR1
trap save_and_end TERM
(on_all serve) &
server_pid=$!
while kill -0 "$server_pid" 2>/dev/null; do wait "$server_pid"; done
