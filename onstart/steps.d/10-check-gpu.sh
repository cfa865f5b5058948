#!/usr/bin/env bash
# Says what this machine is, and refuses one that cannot do the job: GPUs, CUDA, shared memory, disk.
# In: VASTRUN_GPUS, VASTRUN_SETUP, job.json. Out: a line for each part; 1 after saying what is wrong.
set -euo pipefail
exec bash onstart/module.sh boot.preflight machine
