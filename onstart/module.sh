#!/usr/bin/env bash
# Runs a module of the machine's part: `vastrun.onstart.MODULE`.
# In: MODULE ARGUMENT...; VASTRUN_BOX, VASTRUN_PYTHON if that is not python3. Out: what the module makes, and its exit code.
set -euo pipefail
[[ ${PYTHONPATH-}: == "$VASTRUN_BOX/pkg:"* ]] || export PYTHONPATH=$VASTRUN_BOX/pkg${PYTHONPATH:+:$PYTHONPATH}
exec "${VASTRUN_PYTHON:-python3}" "$VASTRUN_BOX/pkg/vastrun/onstart/run_module.py" "vastrun.onstart.${1:?a module}" "${@:2}"
