# `lease.sh end` leaves nothing of an instance: no process however it hid, no port, no folder.
bats_require_minimum_version 1.5.0
load test_helper

setup() { make_box; }
teardown() { end_box; }

# All that was found is sent its signal: it dies as soon as it has a core, and has given its memory back.
gone() { eventually "dead $1"; }

# What a shell started in the box wrote as its pid.
pid_in() { eventually "[[ -s $1 ]]" && printf -v "$2" '%s' "$(<"$1")"; }

@test "a child in a session of its own is killed" {
  start_in_box setsid sleep 600
  pid=$!
  eventually '[[ $(</proc/$pid/comm) == sleep ]]'
  end_box
  gone "$pid"
}

@test "a process that takes a while to give its memory back has ended, too" {
  start_in_box python3 -c 'import time; memory = b"1" * (1 << 30); open("filled", "w"); time.sleep(600)'
  pid=$!
  eventually '[[ -e filled ]]'
  end_box
  dead "$pid"
}

@test "what no signal ends is left in the end, and the box goes" {
  start_in_box sleep 600
  pid=$!
  kill() { :; }
  # Each pause stands for twenty looks.
  sleep() { looks=$((looks + 20)); }
  export -f kill sleep
  end_box
  unset -f kill sleep
  alive "$pid"
  [[ ! -e $VASTRUN_BOX ]]
}

@test "a daemon that forked twice is killed" {
  in_box bash -c '(setsid bash -c "echo \$\$ >daemon; exec sleep 600" </dev/null >/dev/null 2>&1 &)'
  pid_in daemon pid
  end_box
  gone "$pid"
}

@test "a child that cleaned its environment is killed while its parent lives" {
  start_in_box bash -c 'env -i bash -c "echo \$\$ >clean; sleep 600; :"; :'
  pid_in clean pid
  end_box
  gone "$pid"
}

@test "children that go on forking are all killed" {
  start_in_box bash -c 'for _ in {1..500}; do sleep 600 & echo $! >>forked; sleep 0.01; done'
  pid=$!
  eventually '(($(grep -c . forked) > 5))'
  cp forked "$BATS_TEST_TMPDIR"
  end_box
  gone "$pid"
  for pid in $(<"$BATS_TEST_TMPDIR/forked"); do gone "$pid"; done
}

@test "a port that was listened to is free" {
  cat >listen.py <<'PY'
import pathlib, socket, time
server = socket.create_server(("127.0.0.1", 0))
pathlib.Path("port").write_text(str(server.getsockname()[1]))
time.sleep(60)
PY
  start_in_box python3 listen.py
  pid_in port port
  end_box
  eventually "! (: >/dev/tcp/127.0.0.1/$port)"
}

@test "a folder that was made read-only goes as well" {
  mkdir -p deep/er && touch deep/er/file && chmod -R a-w deep
  end_box
  [[ ! -e $VASTRUN_BOX ]]
}

@test "processes of another instance live on" {
  local name pids=()
  box_id=a.b+
  for name in a.b a.b+c aab+ x:a.b+; do
    VASTRUN_INSTANCE=$name VASTRUN_NAME=$box_id sleep 600 3>&- &
    pids+=($!)
  done
  end_box
  for pid in "${pids[@]}"; do alive "$pid"; done
  kill "${pids[@]}"
}

@test "what runs in the slots of the instance ends with it" {
  VASTRUN_HELD=$box_id VASTRUN_INSTANCE=slot@$box_id setsid sleep 600 3>&- &
  local in_slot=$!
  end_box
  gone "$in_slot"
}

@test "ending twice is no error" {
  end_box
  end_box
}
