#!/usr/bin/env bash
# Unpacks the user's code and runs the job's set-up commands in it; the first that fails ends the step.
# In: code.tar.gz, VASTRUN_SETUP (how many commands). Out: code/; 1 after naming the command that failed,
# 78 when the program does not work with the torch or Python that is there now.
set -euo pipefail
cd "$VASTRUN_BOX"
mkdir -p code
if [[ -e code.tar.gz ]]; then
  tar -xzf code.tar.gz -C code
  echo "code: $(find code -type f | wc -l) files"
fi
((VASTRUN_SETUP > 0)) || exit 0
exec bash onstart/module.sh boot.setup
