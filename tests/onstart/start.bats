# The text that Vast runs at each start: packed, under any shell, and what it says where a program is missing.
bats_require_minimum_version 1.5.0
load test_helper
load start_helper

setup() { make_home; }
teardown() { end_lease; }

fails() { ! onstart "$@" >"$home/log" 2>&1; }

@test "dash unpacks the lease and arms it" {
  use dash
  onstart "$shell"
  armed
}

@test "busybox's shell unpacks the lease and arms it" {
  use busybox
  onstart "$shell" sh
  armed
}

@test "busybox's own gzip and base64 unpack it" {
  use busybox
  lacks gzip && lacks base64
  ln -s "$shell" "$home/bin/gzip" && ln -s "$shell" "$home/bin/base64"
  onstart "$shell" sh
  armed
}

@test "bash unpacks the lease and arms it" {
  onstart "$(type -P bash)"
  armed
}

@test "the kernel starts it by its first line" {
  chmod +x "$home/onstart.sh"
  onstart
  armed
}

@test "a second start leaves the lease as it is" {
  onstart "$(type -P bash)"
  first=$(<"$home/vastrun/lease.state")
  onstart "$(type -P bash)"
  [[ $(<"$home/vastrun/lease.state") == "$first" ]]
}

@test "dash says which program the image lacks, in the log and in a file" {
  use dash
  lacks gzip
  fails "$shell"
  grep -q '^vastrun: .*gzip: not found$' "$home/log"
  grep -q 'gzip: not found' "$home/vastrun/onstart.err"
  [[ ! -e $home/vastrun/lease.state ]]
}

@test "busybox's shell says which program the image lacks" {
  use busybox
  lacks base64
  fails "$shell" sh
  grep -q '^vastrun: .*base64: not found$' "$home/log"
}

@test "bash says which program the image lacks" {
  lacks flock
  fails "$(type -P bash)"
  grep -q '^vastrun: .*flock: command not found$' "$home/log"
}

@test "a text that was cut in transfer arms nothing and says so" {
  sed -i 's/^\({ echo .\{200\}\)[^|]*/\1/' "$home/onstart.sh"
  fails "$(type -P bash)"
  grep -q '^vastrun: .*gzip' "$home/log"
  [[ ! -e $home/vastrun/lease.sh ]]
}
