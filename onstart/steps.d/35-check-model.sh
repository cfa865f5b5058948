#!/usr/bin/env bash
# Builds and calls a model of the user's code once, before the data are made; there is nothing to do for our models.
# In: VASTRUN_KIND, job.json, code/. Out: a line; 1 after saying what is wrong with the model.
set -euo pipefail
[[ $VASTRUN_KIND == train ]] || exit 0
exec bash onstart/trainer.sh workload.own_model
