"""axe-core in a page: what of it somebody could not read, or not reach."""

import json
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from tests.launcher.ui.report.chromium import Page

_PACKAGE = "axe_playwright_python"
"""Carries axe-core; nothing else of it is used."""
_OPEN = "document.querySelectorAll('details').forEach(part => part.open = true)"
_ASK = "axe.run({resultTypes: ['violations']}).then(told => JSON.stringify(told.violations))"
_LOOKS = ((1280, False), (390, True))
"""Width of the window, and whether it is dark: two looks see all, as colours do not depend on the width."""


def is_here() -> bool:
    """Whether axe-core is installed."""
    return find_spec(_PACKAGE) is not None


def assert_reachable(browser: Page, address: str) -> None:
    """Whoever sees little or uses no mouse reads and reaches all of it: wide and light, narrow and dark."""
    for width, dark in _LOOKS:
        browser.look(width=width, dark=dark)
        browser.visit(address)
        assert _faults(browser) == [], (address, width, "dark" if dark else "light")


def _faults(browser: Page) -> list[str]:
    """Those that axe-core calls serious or critical, each with the first element that has it."""
    browser.evaluate(f"{_OPEN}; {_source()}; 0")
    found = json.loads(browser.evaluate(_ASK))
    return [_told(fault) for fault in found if fault["impact"] in {"serious", "critical"}]


def _told(fault: Any) -> str:
    first = fault["nodes"][0]
    return f"{fault['id']}, {len(fault['nodes'])} times: {first['html']}: {first['failureSummary']}"


@cache
def _source() -> str:
    return (files(_PACKAGE) / "axe.min.js").read_text(encoding="utf-8")
