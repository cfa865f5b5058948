#!/usr/bin/env bash
# Installs packages with uv where it is installed, else with pip, and prints each large download as it begins.
# In: $1, the Python of the environment; then options and packages, as pip has them. Out: exit 0 when all are installed.
set -euo pipefail
python=$1
shift

if command -v uv >/dev/null; then
	# Without the list of all that is installed.
	uv pip install --python "$python" "$@" 2>&1 | awk '!/^ [-+~] /; { fflush() }'
else
	# "Downloading torch-2.13.0-cp311-….whl (532.2 MB)" is all that pip says before it is silent for minutes.
	PYTHONUNBUFFERED=1 "$python" -m pip --disable-pip-version-check install --progress-bar off "$@" | awk '
		$1 == "Downloading" && $4 ~ /^[MG]B\)$/ { split($2, part, "-"); print "  downloading " part[1] " " part[2] " " $3 " " $4 }
		$0 ~ /^Installing collected packages/ { print "  installing " NF - 3 " packages" }
		{ fflush() }'
fi
