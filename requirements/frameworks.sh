#!/usr/bin/env bash
# Makes an environment with the packages of another one, and on top of them those of frameworks.txt.
# In: $1, the other environment, with an editable install of this checkout; $2, the folder to make. Out: that folder.
set -euo pipefail
cd "$(dirname "$0")/.."

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

rm -rf "$2"
"$1/bin/python" -m venv "$2"
packages=$(packages_of "$2")
# A line of code, so that the .pth files there are read too.
printf "import site; site.addsitedir('%s')\n" "$(packages_of "$1")" >"$packages/base.pth"
# This checkout comes first, wherever the other environment is from.
pwd >"$packages/_checkout.pth"
requirements/install.sh "$2/bin/python" --no-deps --require-hashes --requirement requirements/frameworks.txt
{
	printf '#!%s\n' "$(cd "$2/bin" && pwd)/python"
	printf 'import sys\n\nfrom vastrun.launcher.cli import main\n\nsys.exit(main())\n'
} >"$2/bin/vastrun"
chmod +x "$2/bin/vastrun"
