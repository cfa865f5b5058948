#!/usr/bin/env bash
# Installs what the job's program pins and the image lacks; for `train:` an image of ours lacks nothing.
# In: job.json, VASTRUN_PROVIDER, VASTRUN_KEEP_PYTHON. Out: a line; pip's exit code when it fails, 78 when the image has no pip.
set -euo pipefail
exec bash onstart/module.sh boot.packages
