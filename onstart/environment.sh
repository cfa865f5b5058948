# What the processes of a run see: the secrets, the job's variables, the box's folders, the Python. Sourced by run.sh.
# In: inbox/secrets.env, job.json, node.env, VASTRUN_PROVIDER, VASTRUN_KEEP_PYTHON. Out: exported variables; functions load_*; 1 after saying why.
# shellcheck shell=bash

load_environment() { load_secrets && load_job && load_node && load_folders && load_python; }

# no_environment WHY: in the log, and as the end of a step, so that the verdict says why. No other machine would do better.
no_environment() {
  # shellcheck disable=SC2034 # step_ended reads them
  local stopping='' last_line=$1 began=$EPOCHREALTIME
  log run.sh "$1"
  step_ended 00-environment 78
}

load_secrets() {
  [[ -e inbox/secrets.env ]] || return 0
  set -a
  # shellcheck source=/dev/null
  . inbox/secrets.env
  set +a
  rm inbox/secrets.env
}

load_job() {
  local pair
  if ! bash onstart/module.sh boot.jobfile >.job 2>run.err; then
    no_environment "cannot read job.json with $VASTRUN_PYTHON: $(tail -n 1 run.err)"
    return 1
  fi
  while IFS= read -rd '' pair; do export "${pair?}"; done <.job
}

# Which machine of a training on several this is, and where it meets the others: VASTRUN_NODE, VASTRUN_RENDEZVOUS.
load_node() {
  [[ -e node.env ]] || return 0
  set -a
  # shellcheck source=/dev/null
  . ./node.env
  set +a
}

# All that a tool writes stays in the box.
load_folders() {
  export VASTRUN_RUN=$VASTRUN_BOX/run VASTRUN_DATA=$VASTRUN_BOX/data VASTRUN_OUTPUTS=$VASTRUN_BOX/run/outputs
  export XDG_CACHE_HOME=$VASTRUN_BOX/cache XDG_CONFIG_HOME=$VASTRUN_BOX/cache/config XDG_DATA_HOME=$VASTRUN_BOX/cache/data
  export PIP_CACHE_DIR=$XDG_CACHE_HOME/pip MPLCONFIGDIR=$XDG_CACHE_HOME/matplotlib CUDA_CACHE_PATH=$XDG_CACHE_HOME/cuda
  export TORCHINDUCTOR_CACHE_DIR=$XDG_CACHE_HOME/inductor TRITON_CACHE_DIR=$XDG_CACHE_HOME/triton
  export WANDB_DIR=$VASTRUN_RUN WANDB_CACHE_DIR=$XDG_CACHE_HOME/wandb WANDB_DATA_DIR=$XDG_DATA_HOME/wandb
  export WANDB_CONFIG_DIR=$XDG_CONFIG_HOME/wandb
  mkdir -p "$VASTRUN_OUTPUTS" "$VASTRUN_DATA" code tmp "$XDG_CONFIG_HOME" "$XDG_DATA_HOME"
  # A path to a Unix socket has at most 107 bytes, of which Python's multiprocessing takes 32.
  if ((${#VASTRUN_BOX} + 4 <= 75)); then export TMPDIR=$VASTRUN_BOX/tmp; fi
}

# The machine's Python is the user's own, into which nothing is installed.
keeps_python() { [[ ${VASTRUN_KEEP_PYTHON-} || ${VASTRUN_PROVIDER-} =~ ^(local|pool|slurm)$ ]]; }

# The user's programs find the package vastrun, and nothing else of ours. On a computer that is not the box's own, or has
# other slots, set-up commands install into the box, on top of what is there.
load_python() {
  export PYTHONPATH=$VASTRUN_BOX/pkg${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  if [[ $VASTRUN_PYTHON == /* ]]; then export PATH=${VASTRUN_PYTHON%/*}:$PATH; fi
  if ! keeps_python || [[ $VASTRUN_SETUP == 0 ]]; then return 0; fi
  if ! bash onstart/module.sh boot.overlay_venv "$VASTRUN_BOX/python" 2>run.err; then
    no_environment "cannot make a Python for the set-up commands: $(tail -n 1 run.err)"
    return 1
  fi
  export VASTRUN_PYTHON=$VASTRUN_BOX/python/bin/python VIRTUAL_ENV=$VASTRUN_BOX/python PATH=$VASTRUN_BOX/python/bin:$PATH
}
