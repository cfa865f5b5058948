# Finds interpreters of Python on this computer. Sourced.
# Out: interpreter VERSION prints one of that series (3.12), of the system, on PATH or of pyenv; nothing where there is none.
# shellcheck shell=bash

# A shim of pyenv's may lead nowhere.
interpreter() {
	local pyenv_root=/nowhere candidate
	if command -v pyenv >/dev/null; then pyenv_root=$(pyenv root); fi
	for candidate in "/usr/bin/python$1" "$(command -v "python$1" || true)" "$pyenv_root"/versions/"$1".*/bin/python; do
		if [[ -x $candidate ]] && "$candidate" -c 'import venv' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
}
