#!/usr/bin/env bash
# Installs what the onboard trainer needs and the image lacks, as pinned; an image of ours lacks nothing.
# In: VASTRUN_KIND, VASTRUN_PROVIDER, VASTRUN_KEEP_PYTHON. Out: a line; pip's exit code when it fails, 78 when the image has no pip.
set -euo pipefail
exec bash onstart/trainer.sh boot.packages
