#!/usr/bin/env bash
# Pins the packages of the images, each with the hashes of all its files. Run it after constraints.txt has changed.
# In: uv (pip install uv), constraints.txt; for torch's CPU build UV_FIND_LINKS or UV_INDEX. Out: the four files.
set -euo pipefail
cd "$(dirname "$0")/.."

# pin FILE OPTION... : the packages that are named on stdin, and what they need.
pin() {
  { echo "# $(head -n 1 "$1" | cut -c 3-)"; uv pip compile --quiet --generate-hashes --no-annotate --no-header \
    --python-version 3.11 --constraint constraints.txt "${@:2}" -; } >"$1.new"
  mv "$1.new" "$1"
}

printf '%s\n' annotated-types h5py numpy nvidia-ml-py wandb | pin trainer/requirements.txt --universal
printf '%s\n' pip py-spy | pin requirements/image.txt --universal
printf '%s\n' hatchling | pin requirements/build.txt --universal
printf '%s\n' torch==2.13.0+cpu | pin requirements/torch-cpu.txt
