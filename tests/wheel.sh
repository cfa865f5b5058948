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
venv/bin/vastrun schema job | python3 -m json.tool >/dev/null
venv/bin/vastrun launch quickstart.yaml --set train.steps=20 --out outputs >summary 2>log || {
	cat log summary >&2
	exit 1
}
grep -q SUCCEEDED summary
venv/bin/python -c 'import vastrun; print(vastrun.run("last").result().verdict)' | grep -q SUCCEEDED
package=$(echo venv/lib/python3*/site-packages/vastrun)
for file in py.typed contract/job.py onstart/run.sh python_probe.py boot/pip.sh trainer/requirements.txt; do
	[[ -n $(find "$package" -path "*/$file") ]] || { echo "the wheel lacks $file" >&2; exit 1; }
done
# A user's own launcher.py, trainer.py or PyPI's trainer must not meet ours.
top_level=$(python3 -m zipfile -l "$folder"/wheel/vastrun-*.whl | awk 'NR > 1 {split($1, part, "/"); print part[1]}' | sort -u | grep -v dist-info)
[[ $top_level == vastrun ]] || { echo "the wheel's top level has: $top_level" >&2; exit 1; }
# A package that is missing is there after the command that is printed, whichever tool made the environment.
export UV_TOOL_DIR=$folder/uv-tool UV_TOOL_BIN_DIR=$folder/bin PIPX_HOME=$folder/pipx PIPX_BIN_DIR=$folder/bin
python3 -m venv tools
tools/bin/python -m pip install --quiet uv pipx
PATH=$folder/tools/bin:$PATH
wheel=$(echo "$folder"/wheel/vastrun-*.whl)
pins=(--constraint "$checkout/constraints.txt")
{
	uv venv --python python3 uv-venv
	uv pip install --python uv-venv/bin/python "${pins[@]}" "$wheel"
	uv tool install --python python3 --constraints "$checkout/constraints.txt" "$wheel"
	pipx install --pip-args "${pins[*]}" "$wheel"
	python3 -m venv editable
	editable/bin/python -m pip install "${pins[@]}" --editable "$checkout"
} >log 2>&1 || {
	cat log >&2
	exit 1
}
for environment in venv editable uv-venv uv-tool/vastrun pipx/venvs/vastrun; do
	"$environment/bin/vastrun" doctor --provider docker >said || true
	command=$(sed -nE "s/^ *try: +(.*'docker>=7.1')$/\1/p" said)
	if ! eval "${command:-false}" >>said 2>&1 || ! "$environment/bin/python" -c 'import docker'; then
		cat said >&2
		exit 1
	fi
	echo "a missing package comes by: $command"
done
echo "the wheel works outside the checkout; the launcher alone needs no torch"
