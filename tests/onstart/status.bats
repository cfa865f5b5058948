# status.sh says in one line of JSON how the box stands.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  only_steps
}
teardown() { end_box; }

# says KEY: the value of a key, by a real JSON reader.
says() { bash onstart/status.sh | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
start() { in_box bash onstart/run.sh start; }

@test "a fresh box is idle, with no lease" {
  [[ $(says box) == idle && $(says exit_code) == None && $(says lease) == none && $(says supervisor) == None ]]
  (($(says free_mb) > 0 && $(says sent_mb) >= 0))
}

@test "its traffic is that of all interfaces but the loopback" {
  [[ -r /proc/net/dev ]] || skip "the kernel does not say"
  local least
  least=$(awk -F'[: ]+' 'NR > 2 && $2 != "lo" { bytes += $3 } END { print int(bytes / 1048576) }' <(sed 's/^ */ /' /proc/net/dev))
  (($(says received_mb) >= least && $(says received_mb) <= least + 64))
}

@test "it is one line" {
  [[ $(bash onstart/status.sh | wc -l) == 1 ]]
}

@test "a box that runs says its step" {
  stub_step 10-one 'sleep 60'
  start
  eventually '[[ $(says onstart_step) == 10-one ]]'
  [[ $(says box) == running ]]
}

@test "a box whose run ended says its exit code and the size of its log" {
  stub_step 10-one 'echo hello; exit 5'
  start
  eventually '[[ $(says box) == ended ]]'
  [[ $(says exit_code) == 5 && $(says log_bytes) == "$(stat -c %s run/run.log)" ]]
}

@test "a run.sh that was killed leaves a dead box" {
  stub_step 10-one 'echo $PPID >main; sleep 60'
  start
  eventually '[[ -s main ]]'
  kill -KILL "$(<main)"
  eventually '[[ $(says box) == dead ]]'
}

@test "it tells an armed lease from one that died" {
  export LEASE_SHIP_S=600 LEASE_LIFE_S=3600 LEASE_LIFE_CAUSE=time_limit LEASE_GRACE_S=60 LEASE_COLLECT_S=600
  in_box bash onstart/lease.sh
  [[ $(says lease) == armed && $(says lease_ends_at) == "$(sed -n 's/^ends_at=//p' lease.state)" ]]
  kill -KILL "$(sed -n 's/^pid=//p' lease.state)"
  eventually '[[ $(says lease) == dead ]]'
}

@test "it hands on what the supervisor wrote" {
  mkdir -p run
  echo '{"step": 7, "ranks": []}' >run/status.json
  [[ $(says supervisor) == "{'step': 7, 'ranks': []}" ]]
}

@test "it starts no Python" {
  stub python3 'exit 99'
  VASTRUN_PYTHON=/no/such/python bash onstart/status.sh
}
