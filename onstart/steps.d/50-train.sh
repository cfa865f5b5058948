#!/usr/bin/env bash
# Trains: the supervisor starts the ranks, watches them and writes the evidence.
# In: job.json, code/, data/. Out: the supervisor's exit code, run/outcome.json.
set -euo pipefail
exec bash onstart/trainer.sh supervise
