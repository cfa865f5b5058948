#!/usr/bin/env bash
# Builds the wheel and uses it as a stranger would: in an empty folder, with no checkout, the launcher without torch.
# In: .venv with the trainer. Out: exit 0 when a job was planned and launched, and Python could read its verdict.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$checkout/.venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$folder/wheel" "$checkout"
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --constraint "$checkout/constraints.txt" "$folder"/wheel/vastrun-*.whl
if "$folder/venv/bin/python" -c 'import torch' 2>/dev/null; then
	echo "the launcher alone must not bring torch" >&2
	exit 1
fi

cd "$folder"
export XDG_STATE_HOME=$folder/state VASTRUN_PYTHON=$checkout/.venv/bin/python
venv/bin/vastrun plan own_script.yaml >/dev/null
venv/bin/vastrun image ls | grep -q cu130
venv/bin/vastrun launch quickstart.yaml --set train.steps=20 --out outputs >summary 2>log || {
	cat log summary >&2
	exit 1
}
grep -q SUCCEEDED summary
venv/bin/python -c 'import vastrun; print(vastrun.run("last").result().verdict)' | grep -q SUCCEEDED
for file in vastrun/py.typed launcher/py.typed launcher/commands/python_probe.py trainer/boot/pip.sh; do
	ls venv/lib/python3*/site-packages/"$file" >/dev/null
done
echo "the wheel works outside the checkout; the launcher alone needs no torch"
