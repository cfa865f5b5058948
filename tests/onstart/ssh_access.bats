# The lease lets the launcher's key in, and keeps owner and modes as sshd's StrictModes wants them.
bats_require_minimum_version 1.5.0
load test_helper
load start_helper

setup() {
  make_home
  key=AAAAC3NzaC1lZDI1NTE5AAAAIOur/key+1 keys=$home/.ssh/authorized_keys
}
teardown() { end_lease; }

# What Vast leaves there: a key of the user's account, in a file that others may write.
found() {
  mkdir -p "$home/.ssh"
  echo "ssh-ed25519 AAAAother user@laptop" >"$keys"
  chmod 666 "$keys"; chmod 777 "$home/.ssh" "$home"
}
has_key() { grep -qsx "ssh-ed25519 $key" "$keys"; }
loose() { [[ -n $(find "$home" "$home/.ssh" "$keys" -maxdepth 0 '(' -perm /022 -o ! -uid "$EUID" ')') ]]; }
tight() { ! loose; }

# One turn of the lease's, waited for.
let_in_once() {
  mkdir -p "$home/vastrun"
  (cd "$home/vastrun" && eval "$(sed -n '/^let_in() {/,/^}/p' "$repo/onstart/lease.sh")" && VASTRUN_SSH_KEY=$key let_in) || true
}

@test "a key is let in where there was no folder for keys" {
  onstart "$(type -P bash)"
  eventually has_key
  [[ $(stat -c %a "$home/.ssh" "$keys") == $'700\n600' ]]
}

@test "bash: a file and folders that others may write are the user's alone after the start" {
  found
  onstart "$(type -P bash)"
  eventually 'has_key && tight'
}

@test "dash: a file and folders that others may write are the user's alone after the start" {
  use dash
  found
  onstart "$shell"
  eventually 'has_key && tight'
}

@test "busybox: a file and folders that others may write are the user's alone after the start" {
  use busybox
  found
  onstart "$shell" sh
  eventually 'has_key && tight'
}

@test "the keys that are there stay, and a last line without its end does" {
  found
  printf 'ssh-ed25519 AAAAlast' >>"$keys"
  onstart "$(type -P bash)"
  eventually has_key
  grep -qx 'ssh-ed25519 AAAAother user@laptop' "$keys"
  grep -qx 'ssh-ed25519 AAAAlast' "$keys"
}

@test "files of another user become the user's own" {
  ((EUID == 0)) || skip "only root gives files away"
  found
  chown 12345 "$home" "$home/.ssh" "$keys"
  onstart "$(type -P bash)"
  eventually tight
}

@test "what is changed, or taken away, later is set right again" {
  found
  onstart "$(type -P bash)"
  eventually 'has_key && tight'
  rm "$keys"; chmod 777 "$home/.ssh"
  eventually 'has_key && tight'
  [[ $(grep -c "$key" "$keys") == 1 ]]
}

@test "a link is not followed" {
  found
  mv "$keys" "$BATS_TEST_TMPDIR/elsewhere"
  ln -s "$BATS_TEST_TMPDIR/elsewhere" "$keys"
  let_in_once
  [[ $(stat -c %a "$BATS_TEST_TMPDIR/elsewhere") == 666 ]]
  [[ $(<"$BATS_TEST_TMPDIR/elsewhere") == "ssh-ed25519 AAAAother user@laptop" ]]
}

@test "a pipe in its place does not keep the lease from ending the box" {
  mkdir "$home/.ssh"
  mkfifo "$keys"
  LEASE_SHIP_S=2 onstart "$(type -P bash)"
  eventually '[[ ! -e $home/vastrun ]]'
}

@test "without a key of the environment nothing is touched" {
  found
  key='' let_in_once
  loose
  run ! grep -q 'ssh-ed25519 $' "$keys"
}
