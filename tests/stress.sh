#!/usr/bin/env bash
# Runs tests again and again beside busy processes, each time in another order, and counts what failed.
# In: TIMES, how often; LOAD, how many processes keep the processors busy; files or folders of tests, in $@.
# Out: a line for each round with its seed, then each test that failed and how often; exit 0 when none did.
# A round is repeated by: make test ORDER=SEED
set -euo pipefail
cd "$(dirname "$0")/.."

told=$(mktemp -d)
busy=()
end() {
	kill "${busy[@]}" 2>/dev/null || true
	rm -rf "$told"
}
trap end EXIT

for ((i = 0; i < LOAD; i++)); do
	(while :; do :; done) &
	busy+=($!)
done

failed=0
for ((seed = 1; seed <= TIMES; seed++)); do
	began=$SECONDS
	.venv/bin/python -m pytest -q -n auto --dist worksteal --random-order-seed="$seed" \
		-m 'not integration' "$@" >"$told/$seed" 2>&1 || failed=1
	echo "round $seed of $TIMES, $LOAD busy processes: $(tail -n 1 "$told/$seed"); $((SECONDS - began)) s"
done

if ((failed)); then
	sed -nE 's/^((FAILED|ERROR) [^ ]+).*/\1/p' "$told"/* | sort | uniq -c | sort -rn
	for log in "$told"/*; do
		if ! grep -qE '^=+ (FAILURES|ERRORS) ' "$log"; then head -n 5 "$log"; fi
		sed -nE '/^=+ (FAILURES|ERRORS) =/,/^=+ short test summary/p' "$log"
	done
	exit 1
fi
