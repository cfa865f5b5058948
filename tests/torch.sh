#!/usr/bin/env bash
# Tries the trainer with another torch, and without the launcher's packages, annotated-types and W&B. With the oldest torch,
# the other packages are the oldest that pyproject.toml allows, too.
# In: $1, a version of torch such as 2.11.0, or `newest`, which is the newest that pip finds; PYTHON (python3); PART=K/N of
# the tests (1/1); CHECKS, names of tests.gpu (all); WORKERS of pytest (auto); the network, the first time.
# Out: a line with the verdict; exit 0 when the trainer works. The environment stays in .venv-torch-VERSION: the second
# time is quick. What was printed is in build/torch-VERSION/. In CI, a version that constraints.txt pins is not tried again.
set -euo pipefail
cd "$(dirname "$0")/.."
# What the trainer needs besides torch, what it uses where it is installed, and what its tests need.
packages=(numpy h5py matplotlib nvidia-ml-py tensorboard lightning safetensors)
packages+=(pytest pytest-random-order pytest-timeout pytest-xdist hypothesis psutil)
absent=(annotated_types pydantic wandb paramiko)

# Prints the version of the newest torch that pip finds.
newest() {
	"${PYTHON:-python3}" -m pip --quiet --disable-pip-version-check install --dry-run --no-deps --ignore-installed \
		--report - torch | "${PYTHON:-python3}" -c 'import json, sys
print(json.load(sys.stdin)["install"][0]["metadata"]["version"].partition("+")[0])'
}

# Makes the environment, unless it is there and newer than what it is made of.
make_environment() {
	if [[ $environment/made -nt constraints.txt && $environment/made -nt $0 ]]; then return; fi
	echo "setting up $environment (once; torch is large)"
	rm -rf "$environment"
	"${PYTHON:-python3}" -m venv "$environment"
	# torch says which of these two it needs. With the oldest torch, the others are the oldest too.
	local pins=$environment/constraints.txt oldest=''
	if grep -qF "\"torch>=${version%.0}," pyproject.toml; then
		oldest=$("${PYTHON:-python3}" tests/bounds.py lowest trainer export)
	fi
	grep -viE "^($(sed -n 's/==.*//p' <<<"$oldest" | paste -sd '|' -)|torch|setuptools)==" constraints.txt >"$pins"
	echo "$oldest" >>"$pins"
	requirements/install.sh "$python" --constraint "$pins" "torch==$version" "${packages[@]}"
	# As an editable install would, but without what the launcher depends on: programs of the tests import the trainer.
	pwd >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
	touch "$environment/made"
}

# Fails where one of the packages is there that must be absent: the tests would prove nothing.
expect_absent() {
	"$python" - "${absent[@]}" <<-'END'
		import sys
		from importlib.util import find_spec
		there = [name for name in sys.argv[1:] if find_spec(name)]
		sys.exit(f"these must be absent: {', '.join(there)}" if there else 0)
	END
}

# Runs a command, with its output in the file $1, which is shown when it fails. Leaves the last line in `last`.
last=
quietly() {
	local log=$1 code=0
	"${@:2}" >"$log" 2>&1 || code=$?
	last=$(tail -n 1 "$log" | sed 's/^=* *//; s/ *=*$//')
	if ((code)); then cat "$log"; fi
	return "$code"
}

version=${1:-newest}
if [[ $version == newest ]]; then version=$(newest); fi
if [[ -n ${CI:-} ]] && grep -qx "torch==$version" constraints.txt; then
	echo "torch $version: constraints.txt pins it, so that make test has tried it"
	exit 0
fi
environment=.venv-torch-$version
out=build/torch-$version
python=$environment/bin/python
make_environment
expect_absent
mkdir -p "$out"
what=$("$python" -c 'import platform, torch; print(f"torch {torch.__version__}, Python {platform.python_version()}")')
export PYTHONPATH=$PWD
# In CI a missing part fails a test; here it is skipped, and the log says why.
unset CI PYTHONDONTWRITEBYTECODE
read -ra checks <<<"${CHECKS:-}"
failed=()
# Whichever part of the tests is taken: this says what else will fail, and why.
quietly "$out/internals.txt" "$python" -m pytest -q -p no:cacheprovider tests/trainer/test_torch_internals.py ||
	failed+=("torch's private names")
quietly "$out/tests.txt" "$python" -m pytest -q -p no:cacheprovider -n "${WORKERS:-auto}" --dist worksteal \
	--part "${PART:-1/1}" -m 'not slow and not integration' tests/onstart tests/trainer tests/vastrun tests/gpu || failed+=(tests)
tests=$last
quietly "$out/checks.txt" "$python" -m tests.gpu --cpu --minutes "${MINUTES:-30}" --out "$out" "${checks[@]}" ||
	failed+=(checks)
if ((${#failed[@]})); then
	echo "$what: the trainer does not work: ${failed[*]} failed (tests: $tests; checks on the CPU: $last)"
	exit 1
fi
echo "$what: the trainer works (tests: $tests; checks on the CPU: $last)"
