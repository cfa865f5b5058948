#!/usr/bin/env bash
# Tries the MLflow tracker with a server of MLflow's own on SQLite, with the client that constraints.txt pins and with the
# oldest one that pyproject.toml allows. In: .venv; the network. Out: a line with the verdict; exit 0 when both work. The
# server and the client are installed in .venv/bounds/, once.
set -euo pipefail
cd "$(dirname "$0")/.."
server=.venv/bounds/mlflow-server
client=.venv/bounds/mlflow-lowest
pinned=$(sed -n 's/^mlflow-skinny==//p' constraints.txt)
lowest=$(.venv/bin/python tests/bounds.py lowest mlflow)

if ! [[ -x $server/bin/mlflow ]]; then
	echo "setting up $server: a server of MLflow $pinned (once; it is large)"
	python=$(command -v "${PYTHON:-python3}")
	"$python" -m venv "$server"
	requirements/install.sh "$server/bin/python" "mlflow==$pinned"
fi
[[ -d $client ]] || requirements/install.sh .venv/bin/python --no-deps --target "$client" "$lowest"

export MLFLOW_SERVER=$PWD/$server/bin/mlflow
tests=(tests/trainer/telemetry/test_mlflow.py tests/trainer/telemetry/test_mlflow_server.py)
.venv/bin/python -m pytest -q -n 0 "${tests[@]}"
PYTHONPATH=$PWD/$client .venv/bin/python -m pytest -q -n 0 "${tests[@]}"
echo "MLflow $pinned and $lowest: the tracker works with a server of MLflow $pinned"
