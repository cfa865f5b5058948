#!/usr/bin/env bats
# slot.sh: a command runs in its slot, sees what the slot has, and nothing of the machine's own box.
load test_helper

setup() {
  make_box
  slot=$VASTRUN_BOX/slots/one.0000
  mkdir -p "$slot"
  printf "export VASTRUN_BOX='%s' LEASE_LIFE_S=60 VASTRUN_CORES=0 MINE='it'\\\\''s'\n" "$slot" >"$slot/slot.env"
}

@test "a command runs in the folder of its slot, with its environment" {
  run bash onstart/slot.sh one.0000 'echo "$PWD $VASTRUN_BOX $LEASE_LIFE_S $MINE"'
  [ "$output" = "$slot $slot 60 it's" ]
}

@test "what the machine's own box has is not seen" {
  VASTRUN_INSTANCE=machine LEASE_SHIP_S=5 run bash onstart/slot.sh one.0000 'echo "${VASTRUN_INSTANCE-none} ${LEASE_SHIP_S-none}"'
  [ "$output" = "none none" ]
}

@test "its exit code is that of the command" {
  run bash onstart/slot.sh one.0000 'exit 7'
  [ "$status" -eq 7 ]
}

@test "it runs on the cores of its slot" {
  command -v taskset >/dev/null || skip "no taskset"
  run bash onstart/slot.sh one.0000 'taskset -pc $$'
  [[ $output == *": 0" ]]
}

@test "where there is no such slot it says so" {
  run bash onstart/slot.sh two.0000 true
  [ "$status" -eq 113 ]
  [[ $output == *"there is no slot two.0000"* ]]
}
