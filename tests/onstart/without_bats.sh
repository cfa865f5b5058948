#!/usr/bin/env bash
# Runs bats files where bats is not installed: as much of it as ours use.
# In: the files. Out: a line for each test, and all output of one that failed. Exit code 1 when one did.
# shellcheck disable=SC1090,SC2034,SC2329 # the files are its code, and use what is defined here
set -u

load() { source "$BATS_TEST_DIRNAME/$1.bash"; }
bats_require_minimum_version() { :; }
# skip WHY: the test ends, and counts as passed.
skip() { exit 0; }

# run [!] COMMAND...: its output is $output, its exit code $status; with !, it has to fail.
run() {
  local refused=
  if [[ $1 == ! ]]; then refused=1 && shift; fi
  set +e
  output=$("$@" 2>&1)
  status=$?
  set -e
  [[ ! $refused || $status != 0 ]]
}

# In a process of its own, whose last act is to clean up. Must not be called in a condition: bash would ignore `set -e`.
run_test() (
  teardown() { :; }
  set -eE +u
  source "$1"
  trap 'code=$?; set +eE; teardown; exit "$code"' EXIT
  setup
  "test_$2"
)

failed=0 number=0
for file; do
  BATS_TEST_DIRNAME=$(cd "$(dirname "$file")" && pwd)
  functions=$(mktemp)
  awk '/^@test / { print "test_" ++n "() {"; next } { print }' "$file" >"$functions"
  mapfile -t names < <(sed -n 's/^@test "\(.*\)" {$/\1/p' "$file")
  for index in "${!names[@]}"; do
    BATS_TEST_TMPDIR=$(mktemp -d) BATS_TEST_NUMBER=$((++number))
    export BATS_TEST_DIRNAME BATS_TEST_TMPDIR BATS_TEST_NUMBER
    run_test "$functions" "$((index + 1))" >"$functions.out" 2>&1 3>&1 </dev/null
    code=$?
    if [[ $code == 0 ]]; then echo "ok $number ${names[index]}"; else
      echo "not ok $number ${names[index]}" && cat "$functions.out" && failed=1
    fi
    rm -rf "$BATS_TEST_TMPDIR"
  done
  rm -f "$functions" "$functions.out"
done
exit "$failed"
