# The deadline ends the box by itself, before its lease would.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  cp "$repo/onstart/lease.sh" "$VASTRUN_BOX/"
}
teardown() { end_box; }

gone() { [[ ! -e $VASTRUN_BOX ]]; }

@test "it returns at once, asks the training to stop in time and ends the box with all its processes" {
  start_in_box sleep 60
  sleeper=$!
  in_box bash onstart/deadline.sh 5 2
  [[ ! -e stop ]]
  eventually '[[ -e stop ]]'
  [[ $(<stop) == time_limit ]]
  ! gone
  eventually gone
  dead "$sleeper"
}

@test "who asked to stop before is not overruled" {
  echo stopped >stop
  in_box bash onstart/deadline.sh 60 60
  eventually '! flock -n deadline.lock true'
  sleep 0.3
  [[ $(<stop) == stopped ]]
}

@test "a second one leaves the first at work" {
  in_box bash onstart/deadline.sh 3 0
  eventually '! flock -n deadline.lock true'
  in_box bash onstart/deadline.sh 60 0
  eventually gone
}

@test "without its seconds it does nothing" {
  run ! in_box bash onstart/deadline.sh
  [[ ! -e deadline.lock ]]
}
