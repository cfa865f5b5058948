# run.sh runs the steps once, in order, keeps their output and leaves the evidence on every path.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  only_steps
}
teardown() { end_box; }

start() { in_box bash onstart/run.sh start; }
run_to_end() { start && eventually '[[ -e run/exit ]]'; }

@test "steps run in order and each leaves its line" {
  stub_step 10-one 'echo first'
  stub_step 20-two 'echo second'
  run_to_end
  [[ $(<run/exit) == 0 ]]
  [[ $(cut -d' ' -f2- run/run.log) == $'10-one first\n20-two second' ]]
  [[ $(grep -cE '^\{"step":"(10-one|20-two)","exit_code":0,"seconds":[0-9]+\.[0-9]{3}\}$' run/steps.jsonl) == 2 ]]
}

@test "steps of the job's program have their places among those of a box" {
  job '{"program": {"kind": "x", "prepare": [
    {"name": "20-own", "module": "vastrun.onstart.own", "arguments": ["a b"]}, {"name": "late", "module": "none"}]}}'
  stub_module own 'import sys; print(*sys.argv[1:]); sys.exit(3)'
  stub_step 10-one 'echo one'
  stub_step 30-three 'touch reached'
  run_to_end
  [[ $(<run/exit) == 3 && $(cut -d' ' -f2- run/run.log) == $'10-one one\n20-own a b' && ! -e reached ]]
  grep -q '"step":"20-own","exit_code":3' run/steps.jsonl
}

@test "each line of the log begins with the time to the millisecond" {
  stub_step 10-one 'echo out; echo err >&2; printf "no newline"'
  run_to_end
  [[ $(grep -cE '^[0-9]{10}\.[0-9]{3} 10-one (out|err|no newline)$' run/run.log) == 3 ]]
}

@test "the first step that fails ends the run with its exit code" {
  stub_step 10-one 'exit 76'
  stub_step 20-two 'touch reached'
  run_to_end
  [[ $(<run/exit) == 76 && ! -e reached ]]
  [[ -e run/manifest.json ]]
}

# last_line CODE: what Python prints of `last`, the last line of the step that failed.
last_line() { python3 -c "import json; last = json.load(open('run/steps.jsonl'))['last_line']; $1"; }

@test "a step that fails leaves its last line, as JSON of one line and of bounded length" {
  stub_step 10-one 'printf "10%%\\r\\033[31mno \"GPU\"\\tin C:\\\\x\\r\\n  \\n"; exit 3'
  run_to_end
  [[ $(last_line 'print(last)') == $'\e[31mno "GPU" in C:\\x' ]]
  rm -r run run.lock
  stub_step 10-one 'head -c 1000000 /dev/zero | tr "\\0" "\\\\"; exit 3'
  run_to_end
  [[ $(last_line 'print(len(last))') == 300 ]]
}

@test "a Python program's last words are the last line, though its output is buffered" {
  stub_step 10-one 'exec python3 -c "import sys; print(\"first\"); sys.exit(\"the cause\")"'
  run_to_end
  [[ $(cut -d" " -f3- run/run.log) == $'first\nthe cause' && $(<run/steps.jsonl) == *',"last_line":"the cause"}' ]]
}

@test "however often a run is started, its steps run once" {
  stub_step 10-one 'echo once; sleep 0.5' # long enough to overlap
  for _ in 1 2 3 4 5; do in_box bash onstart/run.sh main & done
  wait
  eventually '[[ -e run/exit ]]'
  start
  [[ $(grep -c once run/run.log) == 1 ]]
}

@test "the training's program loads before its turn, and goes on at its turn" {
  job '{"ranks": 1, "program": {"kind": "train", "preload": ["torch"]}}'
  stub_step 10-one 'for _ in {1..200}; do [[ ! -e loading ]] || break; sleep 0.05; done; [[ -e loading ]]; echo one'
  stub_step 50-train 'touch loading; [[ -n $VASTRUN_TURN ]]; read -r; echo trains'
  VASTRUN_PROVIDER=local run_to_end
  [[ $(<run/exit) == 0 && $(cut -d' ' -f2- run/run.log) == $'10-one one\n50-train trains' ]]
}

@test "it loads only after the user's code is unpacked and set-up is over" {
  job '{"ranks": 1, "program": {"kind": "train", "preload": ["torch"]}}'
  touch code.tar.gz
  stub_step 30-three 'sleep 0.2; [[ ! -e loading ]]'
  stub_step 40-four 'until [[ -e loading ]]; do sleep 0.05; done'
  stub_step 50-train 'touch loading; read -r'
  VASTRUN_PROVIDER=local run_to_end
  [[ $(<run/exit) == 0 ]]
}

@test "a program that ended before its turn is started again at its turn" {
  job '{"ranks": 1, "program": {"kind": "train", "preload": ["torch"]}}'
  stub_step 20-two 'until [[ -s gone ]]; do sleep 0.05; done; while kill -0 "$(<gone)"; do sleep 0.05; done'
  stub_step 50-train '[[ -z ${VASTRUN_TURN-} ]] || { echo $$ >gone; exit 1; }
    echo trains'
  VASTRUN_PROVIDER=local run_to_end
  [[ $(<run/exit) == 0 && $(<run/run.log) == *'50-train trains' ]]
}

@test "a program that waits for its turn is ended with the run when a step before it fails" {
  job '{"ranks": 1, "program": {"kind": "train", "preload": ["torch"]}}'
  stub_step 20-two 'until [[ -s waits ]]; do sleep 0.05; done; exit 3'
  stub_step 50-train 'sleep 60 & echo $! >.waits; mv .waits waits; wait'
  VASTRUN_PROVIDER=local run_to_end
  [[ $(<run/exit) == 3 ]]
  eventually 'dead $(<waits)'
}

@test "start returns at once, in a session of its own" {
  stub_step 10-one 'ps -o sid= -p $PPID >sid; sleep 60'
  SECONDS=0
  start
  ((SECONDS < 5))
  eventually '[[ -s sid ]]'
  [[ $(tr -d ' ' <sid) != "$(ps -o sid= -p $$ | tr -d ' ')" ]]
}

@test "only: one step alone has its exit code and its log, and is no run" {
  stub_step 10-one 'echo first; exit 3'
  stub_step 20-two 'touch reached'
  for _ in 1 2; do run in_box bash onstart/only.sh 10-one; ((status == 3)); done
  [[ $(cut -d' ' -f2- run/run.log) == $'10-one first\n10-one first' ]]
  [[ ! -e reached && ! -e run.lock && ! -e run/exit ]]
}

@test "only: a step for which nobody waits any more is stopped" {
  stub_step 10-one 'sleep 60'
  start_in_box bash -c 'bash onstart/only.sh 10-one; true'
  asker=$!
  eventually '[[ -s step ]]'
  kill -KILL "$asker"
  eventually '[[ -s run/steps.jsonl ]]'
  [[ $(<stop) == stopped && $(<run/steps.jsonl) == *'"exit_code":143'* ]]
}

@test "the steps see which node this is and where the nodes meet, whatever the job says" {
  printf "VASTRUN_NODE=1\nVASTRUN_RENDEZVOUS='[fd00::1]:29400'\n" >node.env
  stub_step 10-one 'echo "$VASTRUN_NODE $VASTRUN_RENDEZVOUS" >seen'
  run_to_end
  [[ $(<seen) == "1 [fd00::1]:29400" ]]
}

@test "the secrets reach the steps and their file is gone" {
  cat >inbox/secrets.env <<'ENV'
KEY='it'\''s a $ecret'
ENV
  stub_step 10-one 'printf "%s" "$KEY" >seen; [[ ! -e inbox/secrets.env ]]'
  run_to_end
  [[ $(<run/exit) == 0 && $(<seen) == "it's a \$ecret" ]]
}

@test "the job's variables reach the steps; of our packages the user's commands find vastrun alone" {
  job '{"ranks": 3, "gpus": 1, "program": {"kind": "train"}, "setup": ["a"], "env": {"A": "b\nc", "PYTHONPATH": "/else"}}'
  stub_step 10-one 'printf "%s" "$A" >seen; echo "$VASTRUN_KIND $VASTRUN_RANKS $VASTRUN_GPUS $VASTRUN_SETUP"'
  stub_step 20-two '[[ $PYTHONPATH == "$VASTRUN_BOX/pkg:/else" ]] && ! python3 -c "import trainer" 2>/dev/null'
  stub_module found "print('found')"
  stub_step 30-three 'cd / && [[ $(bash "$VASTRUN_BOX/onstart/module.sh" found) == found ]]'
  run_to_end
  [[ $(<run/exit) == 0 && $(<seen) == $'b\nc' ]]
  grep -q '10-one train 3 1 1' run/run.log
}

@test "what tools write stays in the box" {
  stub_step 10-one 'for name in XDG_CACHE_HOME XDG_CONFIG_HOME WANDB_DIR PIP_CACHE_DIR TORCHINDUCTOR_CACHE_DIR VASTRUN_DATA
    do [[ ${!name} == "$VASTRUN_BOX"/* ]]; done'
  run_to_end
  [[ $(<run/exit) == 0 ]]
}

@test "on this computer, set-up commands install into the box and see what is installed" {
  job '{"ranks": 1, "setup": ["x"]}'
  stub_step 10-one 'python -c "import sys; print(sys.prefix)" >prefix; pip --version >pip'
  VASTRUN_PROVIDER=local run_to_end
  [[ $(<run/exit) == 0 && $(<prefix) == "$VASTRUN_BOX/python" && $(<pip) == pip* ]]
}

@test "in a container, set-up commands use its Python" {
  job '{"ranks": 1, "setup": ["x"]}'
  stub_step 10-one 'echo $VASTRUN_PYTHON'
  VASTRUN_PROVIDER=docker run_to_end
  grep -q '10-one python3$' run/run.log
}

@test "in a slot, set-up commands install into the box: other slots use the machine's Python, too" {
  job '{"ranks": 1, "setup": ["x"]}'
  stub_step 10-one 'python -c "import sys; print(sys.prefix)" >prefix'
  VASTRUN_PROVIDER=pool run_to_end
  [[ $(<run/exit) == 0 && $(<prefix) == "$VASTRUN_BOX/python" ]]
}

@test "a machine that is held is checked, gets its packages and waits for slots: it has no other steps" {
  job '{"ranks": 1, "program": {"kind": "hold"}, "hold": {"slots": 2, "idle_s": 60}}'
  for step in 10-check 20-comm 25-packages 30-unpack 40-data 45-fetch 50-train; do stub_step $step "echo $step >>done"; done
  run_to_end
  [[ $(<run/exit) == 0 && $(<done) == $'10-check\n25-packages\n50-train' ]]
}

@test "a job file that cannot be read is told in the log and ends the run" {
  echo 'not json' >job.json
  stub_step 10-one 'touch reached'
  run_to_end
  [[ $(<run/exit) == 78 && ! -e reached ]]
  grep -q 'run.sh cannot read job.json with python3: .*JSON' run/run.log
}

@test "a Python that is not there is told in the log and ends the run" {
  stub_step 10-one 'touch reached'
  VASTRUN_PYTHON=/no/such/python run_to_end
  [[ $(<run/exit) == 78 && ! -e reached ]]
  grep -q 'cannot read job.json with /no/such/python' run/run.log
  grep -q '^{"step":"00-environment","exit_code":78,.*"last_line":"cannot read job.json with /no/such/python' run/steps.jsonl
}

@test "a stop ends the step that runs, and no other begins" {
  stub_step 10-one 'touch began; sleep 60'
  stub_step 20-two 'touch reached'
  start
  eventually '[[ -e began ]]'
  bash onstart/run.sh stop stopped
  eventually '[[ -e run/exit ]]'
  [[ $(<run/exit) == 143 && ! -e reached && $(<stop) == stopped ]]
  [[ $(<run/steps.jsonl) == '{"step":"10-one","exit_code":143,"seconds":'*',"stop":"stopped"}' ]]
}

@test "a stop before the first step is written down with it" {
  stub_step 10-one 'touch reached'
  bash onstart/run.sh stop time_limit
  start
  eventually '[[ -e run/exit ]]'
  [[ $(<run/exit) == 143 && ! -e reached ]]
  [[ $(<run/steps.jsonl) == '{"step":"10-one","exit_code":143,"seconds":'*',"stop":"time_limit"}' ]]
}

@test "the first stop keeps its cause" {
  bash onstart/run.sh stop time_limit
  bash onstart/run.sh stop stopped
  [[ $(<stop) == time_limit ]]
}

@test "a step may save before it ends on a stop" {
  stub_step 10-one 'trap "touch saved; exit 143" TERM; touch began; while :; do sleep 0.05; done'
  start
  eventually '[[ -e began ]]'
  bash onstart/run.sh stop stopped
  eventually '[[ -e run/exit ]]'
  [[ -e saved && $(<run/exit) == 143 ]]
}

@test "a SIGTERM to run.sh is a stop" {
  stub_step 10-one 'echo $PPID >main; sleep 60'
  start
  eventually '[[ -s main ]]'
  kill -TERM "$(<main)"
  eventually '[[ -e run/exit ]]'
  [[ $(<run/exit) == 143 && $(<stop) == stopped ]]
}

@test "a program left in the background does not hold the run up" {
  stub_step 10-one 'sleep 60 & echo done'
  run_to_end
  [[ $(<run/exit) == 0 ]]
  grep -q '10-one done' run/run.log
}

@test "no manifest is told in the log, and the exit code is written all the same" {
  stub_step 10-one 'exit 3'
  stub_module transfer/manifest 'raise OSError("disk full")'
  run_to_end
  [[ $(<run/exit) == 3 ]]
  grep -q 'no manifest: OSError: disk full' run/run.log
}

@test "a wrong verb shows the usage" {
  run bash onstart/run.sh begin
  ((status == 2))
  [[ $output == usage:* ]]
}
