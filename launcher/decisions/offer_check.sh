#!/bin/sh
# Tells what the machine has, a line each: disk_kb KB, memory_kb KB, memory_bytes B (the container's limit), gpu MIB, NAME, gpu_used MIB, TOTAL_MIB, cuda VERSION.
# In: the box's folder as the current one. Any POSIX shell; needs df and awk. What is not there is not told.
df -Pk . | awk 'NR == 2 { print "disk_kb", $2 }'
awk '/^MemTotal/ { print "memory_kb", $2 }' /proc/meminfo
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  [ ! -r "$limit" ] || echo "memory_bytes $(cat "$limit")"
done
timeout 60 nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits 2>/dev/null |
  sed "s/^/gpu /"
timeout 60 nvidia-smi --query-gpu=memory.used,memory.total --format=csv,noheader,nounits 2>/dev/null |
  sed "s/^/gpu_used /"
timeout 60 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Z ]* Version: *\([0-9.]*\).*/cuda \1/p'
