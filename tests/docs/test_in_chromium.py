"""The documentation's site in a browser: everybody can read it, and nothing leaves."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts
from tests.docs.markdown import ROOT
from tests.launcher.ui.report.axe import assert_reachable
from tests.launcher.ui.report.chromium import chromium

MAIN = ("index", "quickstart", "own-script", "incidents/index")


@pytest.mark.slow
@pytest.mark.needs("chromium", "axe", "mkdocs")
@pytest.mark.xdist_group("chromium")
def test_everybody_can_read_the_main_pages(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site))
    subprocess.run(build, cwd=ROOT, check=True)
    parts.require("chromium")
    with chromium(tmp_path / "browser") as browser:
        for name in MAIN:
            assert_reachable(browser, (site / f"{name}.html").as_uri())
            assert all(url.startswith(("file://", "data:")) for url in browser.requests)
