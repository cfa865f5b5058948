# A box in a temporary folder, with what the bundle would bring, and stubs ahead on PATH.
repo=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)

make_box() {
  export VASTRUN_BOX=$BATS_TEST_TMPDIR/box VASTRUN_PYTHON=python3
  box_id=bats-$BATS_TEST_NUMBER-$$-$RANDOM
  export PATH=$BATS_TEST_TMPDIR/bin:$PATH
  mkdir -p "$VASTRUN_BOX/pkg/vastrun" "$VASTRUN_BOX/inbox" "$BATS_TEST_TMPDIR/bin"
  cp -rp "$repo/onstart" "$VASTRUN_BOX/"
  cp -rp "$repo"/vastrun/{__init__.py,contract} "$repo/onstart" "$VASTRUN_BOX/pkg/vastrun/"
  stub_module transfer/manifest 'open("run/manifest.json", "w").write("{}")'
  job '{}'
  cd "$VASTRUN_BOX" || return
}

# Runs a program as a process of the box; start_in_box leaves it in the background, as $!.
in_box() { VASTRUN_INSTANCE=$box_id "$@" 3>&-; }
start_in_box() { (export VASTRUN_INSTANCE=$box_id && exec "$@" 3>&-) & }

# Nothing of the box outlives its test.
end_box() { bash "$repo/onstart/lease.sh" end "$box_id" "$VASTRUN_BOX" 2>/dev/null; }

# A job of two ranks that runs a command; $1 has what is different.
job() {
  python3 -c 'import json, sys
job = {"run_id": "r", "ranks": 2, "gpus": 0, "stall_s": 60, "start_s": 60, "program": {"kind": "command", "argv": ["x"]}}
print(json.dumps({**job, **json.loads(sys.argv[1])}))' "$1" >"$VASTRUN_BOX/job.json"
}

# stub NAME BODY: a program on PATH. stub_module PATH BODY: vastrun/onstart/PATH.py on the box. stub_step NAME BODY: an onstart step.
stub() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$BATS_TEST_TMPDIR/bin/$1" && chmod +x "$BATS_TEST_TMPDIR/bin/$1"; }
stub_module() {
  local module=$VASTRUN_BOX/pkg/vastrun/onstart/$1
  rm -rf "$module"; mkdir -p "${module%/*}"; echo "$2" >"$module.py"
}
stub_step() { printf '#!/usr/bin/env bash\nset -euo pipefail\n%s\n' "$2" >"$VASTRUN_BOX/onstart/steps.d/$1.sh"; }

only_steps() { rm "$VASTRUN_BOX"/onstart/steps.d/*; }

# eventually CONDITION: polls until the condition holds, for two minutes: a busy computer fails no test.
eventually() {
  local began=$SECONDS
  until eval "$1"; do
    ((SECONDS - began < 120)) || { echo "never came true: $1"; return 1; }
    sleep 0.05
  done
}

alive() { [[ -e /proc/$1 && $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) != Z* ]]; }
dead() { ! alive "$1"; }
