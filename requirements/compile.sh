#!/usr/bin/env bash
# Pins the packages of the images, each with the hashes of all its files. Run it after constraints.txt has changed.
# In: uv (pip install uv), constraints.txt; for torch's CPU build UV_FIND_LINKS or UV_INDEX. Out: the seven files.
set -euo pipefail
cd "$(dirname "$0")/.."

# needs [EXTRA...]: what pyproject.toml names there; without one, what the launcher itself needs. Never torch: that comes
# with a base, or for the CPU by itself.
needs() {
  python3 -c 'import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = [project["optional-dependencies"][extra] for extra in sys.argv[1:]] or [project["dependencies"]]
print(*(line for extra in extras for line in extra if not line.startswith("torch")), sep="\n")' "$@"
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

needs | pin requirements/launcher.txt --universal
{ needs; needs vast docker; } | pin requirements/providers.txt --universal
needs trainer | pin trainer/requirements.txt --universal
printf '%s\n' pip py-spy | pin requirements/image.txt --universal
printf '%s\n' hatchling | pin requirements/build.txt --universal
printf '%s\n' torch==2.13.0+cpu | pin requirements/torch-cpu.txt
# What .venv lacks for them, in the versions that are there: none of it is in constraints.txt.
grep -oE '^[a-z-]+==[^ ]+' requirements/frameworks.txt | pin requirements/frameworks.txt --universal --no-deps
