# The lease ends the box by itself, for each of its reasons, and nothing of the box is left.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  export LEASE_SHIP_S=600 LEASE_LIFE_S=3600 LEASE_LIFE_CAUSE=time_limit LEASE_GRACE_S=60 LEASE_COLLECT_S=600
}
teardown() { end_box; }

arm() { in_box bash onstart/lease.sh; }
lease_says() { sed -n "s/^$1=//p" lease.state; }
gone() { [[ ! -e $VASTRUN_BOX ]]; }

# A run.sh whose run ended, or goes on, without one: only its lock counts.
hold_run_lock() {
  mkdir -p run
  start_in_box flock -o run.lock sleep 60
  keeper=$!
  eventually '! flock -ns run.lock true'
}

@test "it needs nothing but its own text" {
  run ! grep -nE '\. "|source |lib\.sh' "$repo/onstart/lease.sh"
}

@test "on this computer it asks nobody over the network" {
  for tool in curl wget python3; do stub "$tool" "touch '$VASTRUN_BOX/asked'"; done
  touch shipped
  LEASE_SHIP_S=1 arm
  eventually gone
  [[ ! -e $VASTRUN_BOX/asked ]]
}

@test "it is armed when it returns, and says when it ends the box" {
  arm
  [[ $(lease_says state) == armed ]]
  (($(lease_says ends_at) == $(lease_says armed_at) + 3600))
  alive "$(lease_says pid)"
}

@test "it refuses to start with a limit missing" {
  unset LEASE_LIFE_S
  run arm
  ((status != 0))
  [[ ! -e lease.state ]]
}

@test "a second start leaves the first lease at work" {
  arm
  first=$(lease_says pid)
  arm
  [[ $(lease_says pid) == "$first" ]]
}

@test "after a restart the time that has passed still counts" {
  echo "armed_at=$(($(date +%s) - 3590))" >lease.state
  LEASE_LIFE_S=3592 arm
  eventually gone
}

@test "a forged first start neither stops it nor gives it more time" {
  for forged in $(($(date +%s) + 99999)) 'a[$(touch evil)]' 0x1 09 -1 '' 1e9 99999999999999999999; do
    echo "armed_at=$forged" >lease.state
    arm
    alive "$(lease_says pid)"
    (($(lease_says ends_at) - $(date +%s) <= 3600))
    kill -KILL "$(lease_says pid)"
    eventually 'flock -n lease.log true'
  done
  [[ ! -e evil ]]
}

@test "who arms it again says since when it counts, whatever the box says" {
  cp onstart/lease.sh .
  for forged in $(($(date +%s) + 99999)) $(($(date +%s) - 99999)); do
    echo "armed_at=$forged" >lease.state
    LEASE_AGE_S=500 in_box bash onstart/rearm.sh
    left=$(($(lease_says ends_at) - $(date +%s)))
    ((3090 < left && left <= 3100))
    kill -KILL "$(lease_says pid)"
    eventually 'flock -n lease.log true'
  done
}

@test "a lease at work is not armed again" {
  cp onstart/lease.sh .
  arm
  first=$(lease_says pid)
  LEASE_AGE_S=600 in_box bash onstart/rearm.sh
  [[ $(lease_says pid) == "$first" ]]
}

@test "it ends a box on which nothing was started in time" {
  touch shipped
  LEASE_SHIP_S=1 arm
  eventually gone
}

@test "data that arrive keep a box on which nothing was started" {
  mkdir -p inbox/data
  LEASE_SHIP_S=0 LEASE_LIFE_S=100 LEASE_GRACE_S=100 arm
  eventually '[[ -e stop ]]'
  [[ $(lease_says reason) == time_limit ]]
  touch -d '20 minutes ago' inbox/data
  eventually gone
}

@test "it ends the box at its time limit" {
  hold_run_lock
  LEASE_LIFE_S=2 LEASE_GRACE_S=1 arm
  eventually gone
}

@test "before the limit it asks the training to stop and says why" {
  LEASE_LIFE_S=100 LEASE_GRACE_S=100 LEASE_LIFE_CAUSE=money_limit arm
  eventually '[[ -e stop ]]'
  [[ $(<stop) == money_limit ]]
}

@test "a stop that was asked for earlier keeps its cause" {
  echo stopped >stop
  LEASE_LIFE_S=100 LEASE_GRACE_S=100 arm
  touch collected # the lease notes it in the same round
  eventually '[[ $(lease_says reason) == *"is collected" ]]'
  [[ $(<stop) == stopped ]]
}

@test "it ends a finished box when the outputs were not collected in time" {
  mkdir run && touch run.lock && echo 0 >run/exit
  LEASE_COLLECT_S=1 arm
  eventually gone
}

@test "collected outputs end the box soon, not at its time limit" {
  mkdir run && touch run.lock collected && echo 0 >run/exit
  arm
  eventually '[[ $(lease_says reason) == *"is collected" ]]'
  (($(lease_says ends_at) <= $(lease_says armed_at) + 62))
}

@test "when run.sh dies, what is left of the run is killed and the run has exit code 137" {
  hold_run_lock
  start_in_box env VASTRUN_RUN="$VASTRUN_BOX/run" setsid sleep 60
  rank=$!
  arm
  kill -KILL "$keeper"
  eventually '[[ -e run/exit ]]'
  [[ $(<run/exit) == 137 ]]
  dead "$rank"
  grep -q '^[0-9.]* lease run.sh was killed' run/run.log
}

@test "the evidence of a run whose run.sh died can be collected" {
  hold_run_lock
  arm
  kill -KILL "$keeper"
  eventually '[[ -e run/exit ]]'
  [[ -e run/manifest.json ]]
}

@test "a run without its scripts gets its exit code all the same" {
  hold_run_lock
  rm -r onstart
  in_box bash "$repo/onstart/lease.sh"
  kill -KILL "$keeper"
  eventually '[[ -e run/exit ]]'
  [[ $(<run/exit) == 137 ]]
}

@test "SIGHUP and SIGTERM do not end it" {
  arm
  pid=$(lease_says pid)
  kill -HUP "$pid"
  kill -TERM "$pid"
  touch run.lock && mkdir run && echo 0 >run/exit
  eventually '[[ $(lease_says reason) == *"was collected" ]]'
}

@test "it ends what a removed box left running" {
  start_in_box setsid sleep 60
  left=$!
  arm
  cd /
  rm -rf "$VASTRUN_BOX"
  eventually 'dead "$left"'
}
