#!/usr/bin/env bash
# Checks a release as far as the upload: builds the wheel and the sdist from a clean clone, checks both, and uses the wheel as
# pip, pipx and uv install it. In: .venv with the extra `release` (make release-check), a commit. Out: dist/; exit 0 when all
# of it may be uploaded. TAG: the tag of the release, which must name the version.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
bin=$checkout/.venv/bin
max_packages=15 max_mb=51 # what pip install may bring besides vastrun, and their size together
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "release-check: $*" >&2; exit 1; }

git clone --quiet --no-local "$checkout" "$folder/clone"
cd "$folder/clone"
version=$(sed -nE 's/^version = "(.*)"$/\1/p' pyproject.toml)
grep -q "__version__ = \"$version\"" launcher/__init__.py || fail "launcher/__init__.py has another version than $version"
if [[ -n ${TAG-} ]]; then
	[[ $TAG == "v$version" ]] || fail "the tag $TAG is not v$version, the version in pyproject.toml"
	grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
fi

echo "building $version"
# The wheel is built from the sdist: what one lacks, the other would lack, too.
"$bin/python" -m build --outdir "$folder/dist" . >"$folder/log" 2>&1 || { cat "$folder/log"; fail "the build failed"; }
"$bin/twine" check --strict "$folder"/dist/*
"$bin/check-wheel-contents" "$folder"/dist/*.whl
wheel=$(echo "$folder"/dist/vastrun-"$version"-*.whl)
python3 -m zipfile -l "$wheel" >"$folder/contents"
for file in py.typed __main__.py contract/job.py onstart/boot/pip.sh onstart/run.sh shipped/configs/quickstart.yaml shipped/docs/job-file.md; do
	grep -q "^vastrun/.*$file\|^vastrun/$file" "$folder/contents" || fail "the wheel lacks $file"
done

install() { # COMMAND...: its output is shown only when it fails
	"$@" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "failed: $*"; }
}
pins=(--constraint "$folder/clone/constraints.txt")
cd "$folder"
python3 -m venv plain tools
install python3 -m venv plain
install plain/bin/python -m pip install "${pins[@]}" "$wheel"
packages=$(plain/bin/python -m pip list --format freeze | grep -cvE '^(pip|setuptools|vastrun)(==| @)')
kib=$(du -sk plain/lib/python3*/site-packages --exclude pip --exclude setuptools --exclude '*.pyc' --exclude _distutils_hack | cut -f 1)
echo "pip install: $packages packages besides vastrun, $((kib / 1024)) MB"
((packages <= max_packages)) || fail "pip install brings $packages packages, at most $max_packages"
((kib <= max_mb * 1024)) || fail "pip install takes $((kib / 1024)) MB, at most $max_mb"

install python3 -m venv tools
install tools/bin/python -m pip install uv pipx
export UV_TOOL_DIR=$folder/uv-tool UV_TOOL_BIN_DIR=$folder/uv-bin PIPX_HOME=$folder/pipx PIPX_BIN_DIR=$folder/pipx-bin
PATH=$folder/tools/bin:$PATH
install uv tool install --python python3 --constraints "$folder/clone/constraints.txt" "$wheel"
install pipx install --pip-args "${pins[*]}" "$wheel"

# try_hints VASTRUN: `--help`, `init` and `plan` in a folder of a user's; then each command that they print as the next one.
try_hints() {
	local vastrun=$1 line
	rm -rf "${folder:?}/user" "${folder:?}/bin" && mkdir "$folder/user" "$folder/bin" && cd "$folder/user"
	ln -s "$vastrun" "$folder/bin/vastrun"
	echo 'print("trained")' >train.py
	export XDG_STATE_HOME=$folder/state XDG_CONFIG_HOME=$folder/config XDG_CACHE_HOME=$folder/cache
	local -x PATH=$folder/bin:$PATH
	vastrun --help >help
	sed -nE '/^Commands:/,/^Exit/s/^  ([a-z-]+)  .*/\1/p' help >commands
	(($(wc -l <commands) > 20)) || { cat help; fail "$vastrun --help names too few commands"; }
	while IFS= read -r line; do
		vastrun "$line" --help >/dev/null || fail "$vastrun: the help names $line, which has no help"
	done <commands
	vastrun init >said 2>&1 || { cat said; fail "$vastrun init failed"; }
	# Its offers on Vast need an account: there the hint must say so, and what to do.
	sed -nE 's/^.*: +(vastrun .*)$/\1/p' said >hints
	(($(wc -l <hints) >= 3)) || { cat said; fail "$vastrun init names too few next commands"; }
	while IFS= read -r line; do
		if eval "$line" >said 2>&1 </dev/null; then continue; fi
		[[ $line == *"resources.gpus=0"* ]] && { cat said; fail "not true: $line"; }
		grep -q '^ *try: ' said || { cat said; fail "it fails without a hint: $line"; }
	done <hints
	vastrun plan job.yaml --set resources.gpus=0 >said 2>&1 || { cat said; fail "$vastrun plan failed"; }
	echo "$vastrun: --help, init, plan and $(wc -l <hints) hints"
}
(try_hints "$folder/plain/bin/vastrun")
(try_hints "$folder/uv-bin/vastrun")
(try_hints "$folder/pipx-bin/vastrun")
plain/bin/python -m vastrun --version | grep -q "$version" || fail "python -m vastrun does not work"

# A provider that is a package of its own is found, and says which file it needs.
install plain/bin/python -m pip install "${pins[@]}" "$folder/clone/examples/provider-ssh"
env VASTRUN_SSH_MACHINES="$folder/none.yaml" plain/bin/vastrun doctor --provider ssh-machines >"$folder/log" 2>&1 || true
grep -q "no file $folder/none.yaml" "$folder/log" || { cat "$folder/log"; fail "examples/provider-ssh is not found"; }
echo "examples/provider-ssh: found beside vastrun"

echo "building the documentation"
cd "$folder/clone"
NO_MKDOCS_2_WARNING=1 "$bin/python" -m mkdocs build --quiet --strict --site-dir "$folder/site"
rm -rf "$checkout/dist"
cp -r "$folder/dist" "$checkout/dist"
echo "ready to upload: $(cd "$checkout/dist" && echo *)"
