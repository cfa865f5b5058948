#!/usr/bin/env bash
# Tries the launcher, without torch, on each Python that it supports and this computer has, besides that of .venv: the
# system's own too, which may be of the same series, but older.
# In: .venv; interpreters of the system, on PATH, or of pyenv; PART=K/N of the tests (1/1). Out: a line for each Python;
# exit 0 when the launcher works on all.
# The environments stay in .venv/pythons: the second time is quick.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/interpreter.sh
files=(tests/launcher/{bundle,config,core,decisions,ledger,ui} tests/launcher/test_app.py)
files+=(tests/launcher/cli/test_{help,plan}.py tests/launcher/flow/test_{drive,limits,requests,unreachable}.py)
files+=(tests/launcher/outputs/test_{collect,disk,tail}.py)
# Since 3.12 isinstance does not see what __getattr__ returns.
files+=(tests/launcher/pool/test_held_machines.py)
files+=("tests/launcher/pool/test_over_ssh.py::test_slot_over_ssh_keeps_the_contract[ssh]")
# What a browser makes of a page does not hang on the Python that wrote it.
files+=(--ignore-glob "*/test_in_chromium.py")
files+=(tests/launcher/cli/test_rehearse.py::test_a_step_that_fails_is_the_last_and_a_faulty_job_file_has_none)
tools=(apprise docker hypothesis jsonschema prometheus-client psutil "psycopg[binary]" pyte pytest pytest-timeout)

# Makes the environment $2 of the interpreter $1, unless it is there and as new as what it is made of.
make_environment() {
	local made=$2/made
	if [[ $made -nt pyproject.toml && $made -nt constraints.txt && $made -nt $0 ]]; then return; fi
	rm -rf "$2"
	"$1" -m venv "$2"
	requirements/install.sh "$2/bin/python" --constraint constraints.txt --editable . "${tools[@]}"
	touch "$made"
}

# Tries the launcher in the environment $1: all of it compiles and can be imported, and does what the tests $2… say.
try_launcher() {
	local python=$1/bin/python
	"$python" -X pycache_prefix="$1/compiled" -W error -m compileall -q launcher onstart trainer vastrun
	"$python" -W error::DeprecationWarning:vastrun - <<-'END'
		import importlib, pkgutil
		from vastrun import launcher
		for module in pkgutil.walk_packages(launcher.__path__, "vastrun.launcher."):
		    importlib.import_module(module.name)
	END
	"$python" -m pytest -q -p no:cacheprovider -m 'not torch and not slow' --part "${PART:-1/1}" "${@:2}"
}

exactly() {
	"$1" -c 'import platform; print(platform.python_version())'
}

environments=()
for version in 3.11 3.12 3.13 3.14; do
	python=$(interpreter "$version")
	if [[ -z $python ]]; then
		echo "Python $version: not on this computer"
		continue
	fi
	version=$(exactly "$python")
	if [[ $version == "$(exactly .venv/bin/python)" ]]; then continue; fi
	make_environment "$python" ".venv/pythons/$version"
	environments+=(".venv/pythons/$version")
done
for environment in "${environments[@]}"; do
	# What the oldest and the newest can do, those between them can; what a version warns of is its own.
	if [[ $environment == "${environments[0]}" || $environment == "${environments[-1]}" ]]; then
		try_launcher "$environment" "${files[@]}"
	else
		try_launcher "$environment" tests/launcher/config tests/launcher/cli/test_plan.py
	fi
	echo "Python ${environment##*/}: the launcher works"
done
