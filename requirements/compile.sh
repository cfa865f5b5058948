#!/usr/bin/env bash
# Pins the packages of the images, each with the hashes of all its files. Run it after constraints.txt has changed.
# In: uv (pip install uv), constraints.txt; for torch's CPU build UV_FIND_LINKS or UV_INDEX. Out: the four files.
set -euo pipefail
cd "$(dirname "$0")/.."

# The extra `trainer` of pyproject.toml, without torch: that comes with a base, or for the CPU by itself.
of_trainer() {
  python3 -c 'import tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print(*(line for line in extras["trainer"] if not line.startswith("torch")), sep="\n")'
}

# pin FILE OPTION...: the packages that are named on stdin, and what they need. The first line stays.
pin() {
  {
    head -n 1 "$1"
    uv pip compile --quiet --generate-hashes --no-annotate --no-header --python-version 3.11 \
      --constraint constraints.txt "${@:2}" -
  } >"$1.new"
  mv "$1.new" "$1"
}

{ echo annotated-types; of_trainer; } | pin trainer/requirements.txt --universal
printf '%s\n' pip py-spy | pin requirements/image.txt --universal
printf '%s\n' hatchling | pin requirements/build.txt --universal
printf '%s\n' torch==2.13.0+cpu | pin requirements/torch-cpu.txt
