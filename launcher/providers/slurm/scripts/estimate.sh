# Asks the scheduler when jobs would start, and submits none.
# In: around: the environment for sbatch. estimate OPTION...: asks about a job with these options.
# Out: for each, a line of EXIT_CODE NOW OUTPUT, whose line breaks are form feeds. A controller with a long queue may take
#     seconds for each: what it has no time for is unknown, with code 0.
# shellcheck shell=bash disable=SC2154
estimate() {
  local out='' code=0
  if ((SECONDS < 30)); then
    out=$("${around[@]}" SLURM_TIME_FORMAT=%s sbatch --test-only "$@" 2>&1 <<<'#!/bin/bash') || code=$?
  fi
  echo "$code $(date +%s) $(head -c 2000 <<<"$out" | tr '\n' '\f')"
}
