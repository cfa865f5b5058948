#!/usr/bin/env bash
# Runs a module of the trainer, which lies where only our own processes look: the user may have a `trainer`, too.
# In: MODULE ARGUMENT...; VASTRUN_BOX, VASTRUN_PYTHON if that is not python3. Out: what the module makes, and its exit code.
set -euo pipefail
export PYTHONPATH=$VASTRUN_BOX/pkg:$VASTRUN_BOX/lib${PYTHONPATH:+:$PYTHONPATH}
exec "${VASTRUN_PYTHON:-python3}" "$VASTRUN_BOX/pkg/trainer/contract/run_module.py" "trainer.${1:?a module}" "${@:2}"
