# The batch script of a job: makes the box on the shared disk, serves it, and hands Slurm's signals on to the training.
# In: folder, instance, lease, server, seconds, environment, around: set by the lines before these; SLURM_*. Out: the box;
#     0 once the lease has ended it. USR1 ends it at once; TERM, which Slurm sends before it takes the node back, has the
#     training save, and leaves the box to be collected.
# shellcheck shell=bash disable=SC2154
set -m # what is started here heeds Ctrl-C
umask 077
box=$folder/$instance

# A training takes Slurm's variables for orders: some frameworks start their ranks by them.
forget_slurm() {
  local name
  for name in ${!SLURM_@}; do
    [[ $name =~ ^SLURM_(CONF|CLUSTER_NAME|JOB_ID|JOB_NODELIST|JOB_PARTITION|JOB_GPUS|NODEID)$ ]] || unset "$name"
  done
}

serve() {
  printf '%s' "$lease" >lease.sh
  printf '%s' "$server" >.server.sh
  (
    prepare
    forget_slurm
    exec env "${environment[@]}" VASTRUN_BOX="$box" "${around[@]}" bash .server.sh
  ) </dev/null >>.server.log 2>&1 &
  server_pid=$!
}

# Everything that the box started, wherever it hid; the folder stays.
kill_box() { bash lease.sh end "$instance" "$box/.none" 2>/dev/null; }

end_now() {
  kill_box
  exit 0
}

# Slurm says neither why nor for how long it lets us live; near the job's own end it is its time.
save_and_end() {
  local cause=preempted
  ((SECONDS < seconds - 150)) || cause=time_limit
  echo "$cause" >.stop.job && ln .stop.job stop
  until [[ ! -e run.lock || -e run/exit || ! -d $box ]]; do sleep 0.2; done
  kill_box
  exit 0
} 2>/dev/null

mkdir "$box" && cd "$box" || exit 1
trap end_now USR1
trap save_and_end TERM
serve
while kill -0 "$server_pid" 2>/dev/null; do wait "$server_pid"; done
