"""Overlay venv: create a virtual environment that sees all packages of this Python.

`python -m vastrun.onstart.boot.overlay_venv FOLDER`. Packages installed into it take precedence.
"""

from __future__ import annotations

import sys
import venv
from importlib.util import find_spec
from pathlib import Path


def main(folder: Path) -> None:
    """Create the environment in `folder`, on top of the packages of this Python."""
    # Not `system_site_packages`: that would show the system's packages, not those of a venv that runs this.
    # Installing pip takes two seconds: only where this Python has none, like one of uv.
    needs_pip = find_spec("pip") is None and find_spec("ensurepip") is not None
    venv.EnvBuilder(symlinks=True, with_pip=needs_pip).create(folder)
    below = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    packages = next(folder.glob("lib/python*/site-packages"))
    lines = ["import site", *(f"site.addsitedir({path!r})" for path in below)]
    (packages / "below.pth").write_text("; ".join(lines) + "\n", encoding="utf-8")
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_bytes(Path(__file__).with_name("pip.sh").read_bytes())
        script.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
