# On Vast the lease ends the box through Vast's API, with whatever program for it the image has.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  api=$BATS_TEST_TMPDIR/api
  mkdir "$api"
  python3 "$repo/tests/onstart/vast_api.py" "$api" 3>&- &
  api_pid=$!
  eventually '[[ -e $api/port ]]'
  VAST_URL=http://127.0.0.1:$(<"$api/port")
  export VAST_URL VASTRUN_PROVIDER=vast CONTAINER_ID=4711 CONTAINER_API_KEY=instance-key
  export LEASE_SHIP_S=600 LEASE_LIFE_S=3600 LEASE_LIFE_CAUSE=time_limit LEASE_GRACE_S=60 LEASE_COLLECT_S=600
}

teardown() {
  kill "$api_pid"
  VASTRUN_PROVIDER=local end_box
}

arm() { in_box bash onstart/lease.sh; }
armed() { grep -qs '^state=armed$' lease.state; }
only() { for tool in curl wget python3; do [[ $tool == "$1" ]] || stub "$tool" 'exit 127'; done; }
asked() { grep -qs "^$1 /api/v0/instances/4711/ $2\$" "$api/calls"; }

@test "it is armed once its key has fetched the row of its own instance" {
  arm
  eventually armed
  asked GET 200
}

@test "it is not armed while its key is not accepted" {
  CONTAINER_API_KEY=wrong arm
  eventually 'asked GET 404'
  grep -q '^state=proving$' lease.state
}

@test "armed again from a session that does not know the key, it can end the instance" {
  cp onstart/lease.sh .
  session='env -u CONTAINER_API_KEY -u VAST_URL LEASE_AGE_S=600 bash onstart/rearm.sh || exit'
  in_box bash -c "$session"
  eventually armed
  asked GET 200
}

@test "it proves its key again and again until that works" {
  touch "$api/down"
  arm
  eventually 'asked GET 503'
  run ! armed
  rm "$api/down"
  eventually armed
}

@test "without a key it proves nothing and goes on" {
  unset CONTAINER_API_KEY
  stub curl 'echo >>"$VASTRUN_BOX/tries"; exit 22'
  only curl
  arm
  eventually '[[ $(wc -l <tries) -ge 2 ]]'
  grep -q '^state=proving$' lease.state
  alive "$(sed -n 's/^pid=//p' lease.state)"
}

@test "it ends the instance with curl alone" {
  only curl
  LEASE_SHIP_S=1 arm
  eventually 'asked DELETE 200'
}

@test "it ends the instance with wget alone" {
  only wget
  LEASE_SHIP_S=1 arm
  eventually 'asked DELETE 200'
}

@test "it ends the instance with python3 alone" {
  only python3
  LEASE_SHIP_S=1 arm
  eventually 'asked DELETE 200'
}

@test "a limit ends an instance whose key was never proven" {
  only curl
  touch "$api/down"
  LEASE_LIFE_S=2 LEASE_GRACE_S=1 arm
  eventually 'asked DELETE 503'
}

@test "it asks for its end until that is granted, and on for as long as it lives" {
  only curl
  touch "$api/down"
  LEASE_SHIP_S=1 arm
  eventually 'asked DELETE 503'
  rm "$api/down"
  eventually 'asked DELETE 200'
  alive "$(sed -n 's/^pid=//p' lease.state)"
}

@test "its key is in no argument and in no file" {
  stub curl 'echo "$*" >>"$VASTRUN_BOX/arguments"; exit 1'
  stub wget 'echo "$*" >>"$VASTRUN_BOX/arguments"; exit 1'
  arm
  eventually '[[ $(wc -l <arguments) == 2 ]]'
  run ! grep -rq instance-key .
}
