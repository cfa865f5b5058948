#!/usr/bin/env bash
# Tries a program of a user's own (`command:`) with pairs of torch and Python on the machine: 20 steps of DDP on two ranks,
# or without torch 20 steps of nothing, of which the last 10 are done after a restart from its checkpoint.
# In: PAIRS such as "2.4.1:3.10 none:3.10" (those below); .venv; interpreters of the system, on PATH, or of pyenv; the network
# the first time. Out: a line for each pair; exit 0 when all succeed. What was printed is in build/versions/. Environments
# stay in .venv-torch-VERSION-pySERIES, of 5 GB each: the second time is quick.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/interpreter.sh
read -ra pairs <<<"${PAIRS:-none:3.10 2.1.2:3.10 2.4.1:3.10 2.6.0:3.12 2.9.1:3.13 2.11.0:3.12 newest:3.13}"

# Makes the environment $1 with the interpreter $2 and the torch $3, unless it is there.
make_environment() {
	if [[ $1/made -nt $0 ]]; then return; fi
	rm -rf "$1"
	if [[ $3 == none ]]; then
		"$2" -m venv --without-pip "$1"
	else
		echo "setting up $1 (once; torch is large)"
		"$2" -m venv "$1"
		# torch before 2.3 was built for numpy 1.
		local wanted=("torch==$3" 'numpy<2')
		case $3 in
		newest) wanted=(torch numpy) ;;
		2.[0-2].*) ;;
		*) wanted=("torch==$3" numpy) ;;
		esac
		requirements/install.sh "$1/bin/python" "${wanted[@]}"
	fi
	touch "$1/made"
}

# Trains with the Python $1; what is printed goes to the file $2. The launcher is that of .venv.
train() {
	VASTRUN_PYTHON=$PWD/$1/bin/python .venv/bin/vastrun launch tests/versions/job.yaml --provider local --yes \
		--out "$(mktemp -d "$state/run-XXXX")" >"$2" 2>&1 </dev/null
}

# As train, up to three times where torch itself aborts at its exit: 2.11.0 did in 2 of 14 runs by bare torchrun.
train_patiently() {
	local try
	for try in 1 2 3; do
		if train "$1" "$2"; then return; fi
		grep -q "terminate called without an active exception" "$2" || return 1
		echo "torch aborted at its exit (try $try)"
	done
	return 1
}

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export XDG_STATE_HOME=$state XDG_CONFIG_HOME=$state/config XDG_CACHE_HOME=$state/cache
mkdir -p build/versions
failed=0
for pair in "${pairs[@]}"; do
	torch=${pair%%:*} series=${pair##*:}
	python=$(interpreter "$series")
	if [[ -z $python ]]; then
		echo "Python $series: not on this computer"
		continue
	fi
	environment=.venv-torch-$torch-py$series
	make_environment "$environment" "$python" "$torch"
	log=build/versions/$torch-py$series.txt
	if train_patiently "$environment" "$log"; then
		echo "torch $torch, Python $series: a program of one's own works ($(grep -o 'rank0 torch.*' "$log" | head -n 1))"
	else
		cat "$log"
		echo "torch $torch, Python $series: a program of one's own does not work"
		failed=1
	fi
done
exit $failed
