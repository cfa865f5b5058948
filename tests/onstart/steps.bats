# The steps of a run, each with stubs for what it calls.
bats_require_minimum_version 1.5.0
load test_helper

setup() {
  make_box
  export VASTRUN_KIND=command VASTRUN_RANKS=2 VASTRUN_GPUS=0 VASTRUN_SETUP=0 VASTRUN_FETCH=0 PYTHONPATH=$VASTRUN_BOX/pkg
}

step() { run bash "onstart/steps.d/$1.sh"; }

# nvidia-smi with these GPUs: index, name, MiB, driver.
stub_gpus() {
  stub nvidia-smi "case \$* in *name,memory.total*) printf '%s\n' $(printf "'%s' " "$@");; *) exit 2;; esac"
}

@test "10-check-gpu: without GPUs it says what the computer is" {
  step 10-check-gpu
  ((status == 0))
  [[ $output == *" cores, "* && $output == *"no GPU: the job trains on the CPU"* && $output == *"MiB free"* ]]
}

@test "10-check-gpu: it names every GPU" {
  stub_gpus "0, NVIDIA H200, 143771, 570.1" "1, NVIDIA H200, 143771, 570.1"
  VASTRUN_GPUS=1 step 10-check-gpu
  ((status == 0))
  [[ $output == *$'GPU 0: NVIDIA H200, 143771 MiB, driver 570.1\nGPU 1: NVIDIA H200'* ]]
}

@test "10-check-gpu: fewer GPUs than the job needs is a failure" {
  stub_gpus "0, NVIDIA H200, 143771, 570.1"
  VASTRUN_GPUS=2 step 10-check-gpu
  ((status == 1))
  [[ $output == *"the job needs 2 GPUs, this machine has 1"* ]]
}

@test "10-check-gpu: a driver that does not answer is a failure that shows its words" {
  stub nvidia-smi 'echo "Failed to initialize NVML"; exit 9'
  VASTRUN_GPUS=1 step 10-check-gpu
  ((status == 1))
  [[ $output == *"nvidia-smi does not work here: Failed to initialize NVML"* ]]
}

@test "20-check-comm: it lets all ranks talk" {
  stub_module boot/preflight 'import sys; print("talked", *sys.argv[1:])'
  step 20-check-comm
  ((status == 0))
  [[ $output == "talked comm" ]]
}

@test "20-check-comm: ranks that cannot talk are a failure" {
  stub_module boot/preflight 'raise SystemExit(1)'
  step 20-check-comm
  ((status == 1))
}

@test "20-check-comm: a command with one rank has nobody to talk to" {
  VASTRUN_RANKS=1 step 20-check-comm
  ((status == 0))
  [[ $output == *"no communication"* ]]
}

@test "22-check-nodes: nothing is tried where nobody asks for a speed between nodes" {
  stub_module boot/preflight 'raise SystemExit(1)'
  step 22-check-nodes
  VASTRUN_LINK_MBPS=0 step 22-check-nodes
  ((status == 0))
}

@test "22-check-nodes: the nodes talk, and their failure is the step's" {
  stub_module boot/preflight 'import sys; print("talked", *sys.argv[1:]); raise SystemExit(1)'
  VASTRUN_LINK_MBPS=1000 step 22-check-nodes
  ((status == 1))
  [[ $output == "talked link" ]]
}

@test "25-packages: it installs what the trainer lacks, and its failure is the step's" {
  stub_module boot/packages 'raise SystemExit(1)'
  step 25-packages
  ((status == 1))
}

@test "30-unpack: the code lies in code/, also the second time" {
  echo 'print(1)' >train.py
  tar -czf code.tar.gz train.py
  step 30-unpack
  step 30-unpack
  ((status == 0))
  [[ $output == "code: 1 files" && $(<code/train.py) == 'print(1)' ]]
}

@test "30-unpack: an archive that is cut short is a failure" {
  tar -czf whole.tar.gz onstart
  head -c 200 whole.tar.gz >code.tar.gz
  step 30-unpack
  ((status != 0))
}

@test "30-unpack: set-up commands run in the code folder, in order" {
  job '{"setup": ["touch a; pwd", "ls"]}'
  VASTRUN_SETUP=2 step 30-unpack
  ((status == 0))
  [[ $output == *"$VASTRUN_BOX/code"* && $output == *$'$ ls\na'* ]]
}

@test "30-unpack: the set-up command that failed is named with its exit code" {
  job '{"setup": ["true", "exit 7", "touch reached"]}'
  VASTRUN_SETUP=3 step 30-unpack
  ((status == 1))
  [[ $output == *"set-up failed with exit code 7: exit 7" && ! -e code/reached ]]
}

@test "30-unpack: a set-up command stops at its first failing part" {
  job '{"setup": ["false; touch reached"]}'
  VASTRUN_SETUP=1 step 30-unpack
  ((status == 1))
  [[ ! -e code/reached ]]
}

@test "30-unpack: a trainer folder in the user's code is not taken for ours" {
  mkdir -p code/trainer
  echo 'raise SystemExit("not ours")' >code/trainer/__init__.py
  job '{"setup": ["echo fine"]}'
  VASTRUN_SETUP=1 step 30-unpack
  ((status == 0))
}

@test "38-download: a job that lists no files downloads nothing" {
  stub_module transfer/data_files 'raise SystemExit(1)'
  step 38-download
  ((status == 0))
}

@test "38-download: the exit code says who is to blame" {
  stub_module transfer/data_files 'raise SystemExit(74)'
  VASTRUN_DOWNLOADS=1 step 38-download
  ((status == 74))
}

@test "45-fetch: a job that names no URL has nothing to fetch" {
  stub_module transfer/fetch 'raise SystemExit(1)'
  step 45-fetch
  ((status == 0))
}

@test "45-fetch: without the checkpoint that it needs a job does not train" {
  stub_module transfer/fetch 'raise SystemExit(1)'
  VASTRUN_FETCH=1 step 45-fetch
  ((status == 1))
}

@test "50-train: the supervisor's exit code is the step's" {
  stub_module supervise 'raise SystemExit(75)'
  step 50-train
  ((status == 75))
}
