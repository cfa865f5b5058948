#!/usr/bin/env bash
# Says what this machine is, and refuses one that cannot do the job: too few GPUs, no shared memory, no disk.
# In: VASTRUN_GPUS, VASTRUN_RANKS. Out: a line for each part; 1 when one is too small.
set -euo pipefail

check_gpus() {
  local gpus count
  if ! gpus=$(nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>&1); then
    echo "the job needs $VASTRUN_GPUS GPUs, but nvidia-smi does not work here: ${gpus##*$'\n'}"
    return 1
  fi
  count=$(grep -c . <<<"$gpus")
  printf 'GPU %s\n' "${gpus//$'\n'/$'\n'GPU }"
  ((count >= VASTRUN_GPUS)) || { echo "the job needs $VASTRUN_GPUS GPUs, this machine has $count"; return 1; }
}

describe_cpu() {
  local model memory_kb
  model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  memory_kb=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
  echo "CPU ${model:-unknown}, $(nproc) cores, $((memory_kb / 1048576)) GiB of memory"
}

# NCCL passes data between the GPUs of one machine through /dev/shm, and dies of a segmentation fault when it is small.
check_shared_memory() {
  local mb
  mb=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $2 }')
  echo "/dev/shm ${mb:=0} MiB"
  ((mb < 1024)) || return 0
  echo "/dev/shm is smaller than 1 GiB: start the container with --shm-size or --ipc=host"
  ((VASTRUN_GPUS < 2))
}

check_disk() {
  local mb
  mb=$(df -Pm "$VASTRUN_BOX" | awk 'NR == 2 { print $4 }')
  echo "disk $mb MiB free"
  ((mb >= 512)) || { echo "less than 512 MiB of disk are free"; return 1; }
}

describe_cpu
if ((VASTRUN_GPUS > 0)); then check_gpus; else echo "no GPU: the job trains on the CPU"; fi
check_shared_memory
check_disk
