# The box, as the onstart scripts see it: where it is, which Python trains, where tools keep their files.
# In: VASTRUN_BOX or this file's place. Out: variables; functions box_environment, layer_python, write_stop.
# shellcheck shell=bash
unset LC_ALL; export LC_NUMERIC=C # a dot in EPOCHREALTIME
export VASTRUN_BOX=${VASTRUN_BOX:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
export VASTRUN_PYTHON=${VASTRUN_PYTHON:-python3}

# What every process of a run sees. All that a tool writes stays in the box.
box_environment() {
  export VASTRUN_RUN=$VASTRUN_BOX/run VASTRUN_DATA=$VASTRUN_BOX/data VASTRUN_OUTPUTS=$VASTRUN_BOX/run/outputs
  export PYTHONPATH=$VASTRUN_BOX/pkg${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  export XDG_CACHE_HOME=$VASTRUN_BOX/cache XDG_CONFIG_HOME=$VASTRUN_BOX/cache/config XDG_DATA_HOME=$VASTRUN_BOX/cache/data
  export PIP_CACHE_DIR=$XDG_CACHE_HOME/pip MPLCONFIGDIR=$XDG_CACHE_HOME/matplotlib CUDA_CACHE_PATH=$XDG_CACHE_HOME/cuda
  export TORCHINDUCTOR_CACHE_DIR=$XDG_CACHE_HOME/inductor TRITON_CACHE_DIR=$XDG_CACHE_HOME/triton
  export WANDB_DIR=$VASTRUN_RUN WANDB_CACHE_DIR=$XDG_CACHE_HOME/wandb WANDB_DATA_DIR=$XDG_DATA_HOME/wandb
  export WANDB_CONFIG_DIR=$XDG_CONFIG_HOME/wandb
  mkdir -p "$VASTRUN_OUTPUTS" "$VASTRUN_DATA" "$VASTRUN_BOX/code" "$VASTRUN_BOX/tmp" "$XDG_CONFIG_HOME" "$XDG_DATA_HOME"
  # A path to a Unix socket has at most 107 bytes, of which Python's multiprocessing takes 32.
  if ((${#VASTRUN_BOX} + 4 <= 75)); then export TMPDIR=$VASTRUN_BOX/tmp; fi
  case $VASTRUN_PYTHON in /*) export PATH=${VASTRUN_PYTHON%/*}:$PATH ;; esac
}

# On a computer that is not the box's own, set-up commands install into the box, on top of what is there.
layer_python() {
  "$VASTRUN_PYTHON" -m trainer.layer "$VASTRUN_BOX/python"
  export VASTRUN_PYTHON=$VASTRUN_BOX/python/bin/python VIRTUAL_ENV=$VASTRUN_BOX/python PATH=$VASTRUN_BOX/python/bin:$PATH
}

# The first who writes a stop wins.
write_stop() {
  printf '%s\n' "$1" >"$VASTRUN_BOX/.stop.$$"
  ln "$VASTRUN_BOX/.stop.$$" "$VASTRUN_BOX/stop" 2>/dev/null || true
  rm -f "$VASTRUN_BOX/.stop.$$"
}
