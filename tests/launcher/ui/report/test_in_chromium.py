"""The pages in a browser: nothing is asked for, nothing complains, the table sorts, the pictures answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import parts
from tests.fakebox import Training
from tests.hostile.lie import MARKUP
from tests.launcher.terminal import HANG, Terminal
from tests.launcher.ui.report.axe import assert_reachable
from tests.launcher.ui.report.chromium import Page, chromium
from tests.launcher.ui.report.made import NAME, NOW, made_batch
from tests.launcher.ui.report.test_pages import BROKEN, RICH
from vastrun.contract import layout
from vastrun.launcher.batch.results import batch_report_of
from vastrun.launcher.ui.report.batch_page import batch_page_file

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("chromium")]
COLUMN = "[...document.querySelectorAll('.results tbody tr')].map(row => row.cells[{column}].dataset.sort)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    parts.require("chromium")
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def batch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    file = folder / "report.html"
    file.write_text(batch_page_file(batch_report_of(made_batch(folder, 40), NAME, NOW), folder))
    return file


def assert_quiet(browser: Page) -> None:
    """It asked for nothing but itself and what it holds, and nothing went wrong."""
    assert [url for url in browser.requests if not url.startswith("data:")] == browser.requests[:1]
    assert browser.requests[0].startswith("file:///")
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_run_opens_without_a_request_and_without_a_complaint(
    width: int, dark: bool, browser: Page, tmp_path: Path
) -> None:
    Terminal(tmp_path, RICH).launch()
    browser.look(width=width, dark=dark)
    browser.open(tmp_path / "out" / "report.html")
    assert_quiet(browser)
    drawn, figures = (
        browser.evaluate(f"document.querySelectorAll('{what}').length")
        for what in (".uplot canvas", "figure[data-chart]")
    )
    assert drawn == figures == 7
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.needs("axe")
@pytest.mark.parametrize("training", [RICH, BROKEN, HANG], ids=["good", "failed", "hang"])
def test_everybody_can_read_the_page_of_a_run(training: Training, browser: Page, tmp_path: Path) -> None:
    Terminal(tmp_path, training).launch()
    assert_reachable(browser, (tmp_path / "out" / "report.html").as_uri())


@pytest.mark.slow
@pytest.mark.needs("axe")
def test_everybody_can_read_the_page_of_a_batch(batch_file: Path, browser: Page) -> None:
    assert_reachable(browser, batch_file.as_uri())


def test_nothing_that_a_box_says_runs_in_the_page(browser: Page, tmp_path: Path) -> None:
    evil = {layout.LOG: f"1.000 rank0 Error: {MARKUP}\n".encode(), **RICH.leaves}
    Terminal(tmp_path, type(RICH)(leaves=evil, exit_code=1)).launch()
    browser.open(tmp_path / "out" / "report.html")
    assert_quiet(browser)
    assert browser.evaluate("document.scripts.length - document.querySelectorAll('script[type]').length") == 2


def test_the_policy_of_a_page_lets_nothing_else_run_or_be_asked_for(browser: Page, tmp_path: Path) -> None:
    Terminal(tmp_path, RICH).launch()
    file = tmp_path / "out" / "report.html"
    evil = "<script>window.evil = 1</script><img src='file:///etc/hostname' onerror='window.evil = 2'></body>"
    file.write_text(file.read_text().replace("</body>", evil))
    browser.open(file)
    assert browser.evaluate("window.evil") is None
    assert sum("Content Security Policy" in line for line in browser.complaints) >= 2


def test_a_click_on_a_name_sorts_and_another_one_turns_the_order(batch_file: Path, browser: Page) -> None:
    browser.look()
    browser.open(batch_file)
    assert_quiet(browser)
    column = browser.evaluate(
        "[...document.querySelectorAll('.results th')].map(n => n.innerText).indexOf('Cost')"
    )
    click = f"document.querySelectorAll('.results th button')[{column}].click()"
    read = COLUMN.format(column=column)
    for turned in (False, True):
        browser.evaluate(click)
        costs = [float(cost) for cost in browser.evaluate(read)]
        assert len(costs) == 40
        assert costs == sorted(costs, reverse=turned)
    order = browser.evaluate("document.querySelector('.results th[aria-sort]').getAttribute('aria-sort')")
    assert order == "descending"


def test_a_point_that_is_pointed_at_is_named_above_the_table(batch_file: Path, browser: Page) -> None:
    browser.look()
    browser.open(batch_file)
    browser.evaluate(
        "document.querySelector('.results tr[data-point=\"7\"] td')"
        ".dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    )
    kinds = browser.evaluate("[...document.querySelectorAll('.on')].map(part => part.tagName.toLowerCase())")
    assert kinds == ["tr"]
    assert browser.evaluate("document.querySelector('.chosen').textContent").startswith("#7 ")


def test_scale_may_be_changed_and_the_curves_follow_the_users_taste(batch_file: Path, browser: Page) -> None:
    browser.look()
    browser.open(batch_file)
    pressed = "document.querySelector('.tools button[aria-pressed]').getAttribute('aria-pressed')"
    before = browser.evaluate(pressed)
    browser.evaluate("document.querySelector('.tools button[aria-pressed]').click()")
    assert {before, browser.evaluate(pressed)} == {"true", "false"}
    browser.look(dark=True)
    assert browser.evaluate("document.querySelectorAll('.uplot').length") == 1
    assert browser.complaints == []


@pytest.mark.slow
def test_a_thousand_points_open_within_two_seconds(browser: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(batch_page_file(batch_report_of(made_batch(tmp_path, 1000), NAME, NOW), tmp_path))
    browser.look()
    assert browser.open(file) < 2.0
    assert_quiet(browser)
