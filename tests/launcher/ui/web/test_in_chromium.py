"""The pages of `vastrun ui` in a browser: they keep up, ask nobody else, and run nothing that a box says."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import parts
from tests.fakebox import Training
from tests.hostile.lie import MARKUP
from tests.launcher.terminal import Terminal
from tests.launcher.ui.report.axe import assert_reachable
from tests.launcher.ui.report.chromium import Page, chromium
from tests.launcher.ui.report.made import NAME, NOW, made_batch
from tests.launcher.ui.web.test_server import served
from tests.waiting import eventually
from vastrun.launcher.ui.web.server import Server, Site

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("chromium")]
TEXT = "document.querySelector('main')?.innerText ?? ''"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    parts.require("chromium")
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """With a run that trains on, whose box says what it should not."""
    terminal = Terminal(tmp_path, replace(Training(), seconds=200.0, says=lambda line: f"{line} {MARKUP}"))
    terminal.launch("--detach")
    terminal.clock.sleep(60)
    terminal.type("pull", "last")
    return terminal


@pytest.fixture
def server(terminal: Terminal) -> Iterator[Server]:
    with served(Site(lambda: terminal.ledger, terminal.clock.now, refresh_s=0.5).page) as server:
        yield server


def becomes(browser: Page, shown: Callable[[str], bool]) -> None:
    eventually(lambda: shown(browser.evaluate(TEXT)), what="the page keeps up")


def assert_asked_only(browser: Page, server: Server) -> None:
    """And nothing went wrong."""
    own = server.address
    assert browser.requests and all(url.startswith((own, "data:")) for url in browser.requests)
    assert browser.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (400, True)])
def test_a_page_keeps_up_without_being_loaded_again_and_keeps_what_its_reader_opened(
    browser: Page, server: Server, terminal: Terminal, width: int, dark: bool
) -> None:
    run = terminal.ledger.runs()[0]
    browser.look(width=width, dark=dark)
    browser.visit(f"{server.address}run/{run.id}")
    browser.evaluate("window.loaded = 'once'; document.querySelector('#job details').open = true")
    assert "train (detached)" in browser.evaluate(TEXT)
    terminal.clock.sleep(10)
    terminal.type("attach", "last")
    terminal.clock.sleep(10)  # a page that was made in the last second is shown again, and this clock stands
    becomes(browser, lambda text: "SUCCEEDED" in text and "Proofs" in text)
    assert browser.evaluate("window.loaded") == "once"
    assert browser.evaluate("document.querySelector('#job details').open")
    assert browser.evaluate("document.querySelectorAll('figure[data-chart] canvas').length") >= 1
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    becomes(browser, lambda text: "final" in text)
    assert_asked_only(browser, server)
    assert browser.evaluate("document.scripts.length - document.querySelectorAll('script[type]').length") == 3


def test_a_page_that_its_reader_comes_back_to_again_and_again_asks_once_at_a_time(
    browser: Page, server: Server, terminal: Terminal
) -> None:
    browser.visit(f"{server.address}run/{terminal.ledger.runs()[0].id}")
    browser.evaluate(
        "window.asked = 0; window.fetch = () => { window.asked++; return new Promise(() => {}); };"
    )
    come_back = "for (let n = 0; n < 5; n++) document.dispatchEvent(new Event('visibilitychange'))"
    # On a slow computer, the page may have asked by itself just before: that one ends first.
    eventually(lambda: browser.evaluate(f"{come_back}; window.asked"), what="the page to ask")
    assert browser.evaluate(f"{come_back}; window.asked") == 1


def test_the_list_keeps_the_order_of_its_reader(browser: Page, server: Server, terminal: Terminal) -> None:
    terminal.launch("--set", "name=aaa")
    browser.look()
    browser.visit(server.address)
    first = "document.querySelector('#runs tbody tr').innerText"
    click = "[...document.querySelectorAll('#runs th button')].find(b => b.textContent === 'Job').click()"
    browser.evaluate(click)
    assert "aaa" in browser.evaluate(first)
    terminal.clock.sleep(5)
    terminal.launch("--set", "name=bbb")
    becomes(browser, lambda text: "bbb" in text)
    jobs = browser.evaluate(
        "[...document.querySelectorAll('#runs tbody tr')].map(row => row.cells[2].innerText)"
    )
    assert jobs == sorted(jobs) and len(jobs) == 3
    browser.follow("document.querySelector('#runs tbody a').click()")
    assert "all runs" in browser.evaluate(TEXT)
    assert_asked_only(browser, server)


def test_a_run_is_looked_for_and_what_is_typed_stays_while_the_list_keeps_up(
    browser: Page, server: Server, terminal: Terminal
) -> None:
    terminal.launch("--set", "name=needle")
    browser.look()
    browser.visit(server.address)
    browser.evaluate("document.querySelector('#words').value = 'needle'")
    terminal.launch("--set", "name=hay")
    becomes(browser, lambda text: "hay" in text)
    assert browser.evaluate("document.querySelector('#words').value") == "needle"
    browser.follow("document.querySelector('#find button').click()")
    assert "1 to 1 of 1" in browser.evaluate(TEXT)
    jobs = "[...document.querySelectorAll('#runs tbody tr')].map(row => row.cells[2].innerText)"
    assert browser.evaluate(jobs) == ["needle"]
    terminal.launch("--set", "name=needle-two")
    becomes(browser, lambda text: "1 to 2 of 2" in text)
    assert_asked_only(browser, server)


def test_a_page_says_when_nobody_answers_any_more(browser: Page, terminal: Terminal) -> None:
    with served(Site(lambda: terminal.ledger, terminal.clock.now, refresh_s=0.5).page) as server:
        browser.visit(server.address)
        assert browser.evaluate("document.querySelector('.live').className") == "live"
    becomes(browser, lambda text: "not connected" in text)


@pytest.mark.slow
@pytest.mark.needs("axe")
def test_everybody_can_read_the_pages(browser: Page, tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 10)
    with served(Site(lambda: ledger, lambda: NOW).page) as server:
        for page in ("", f"run/{ledger.runs()[0].id}", f"batch/{NAME}"):
            assert_reachable(browser, server.address + page)
