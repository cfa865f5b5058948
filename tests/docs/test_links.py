"""Every link of a page leads somewhere: to a file that is there, and a heading that it has."""

import re
from pathlib import Path

from tests.docs.generated import GENERATED
from tests.docs.markdown import DOCS, PAGES, ROOT, anchors, links


def dead(page: Path, text: str) -> list[str]:
    """Return the links of the page that lead nowhere; of a page of the site, also those that leave it."""
    return [target for target in links(text) if not _leads_somewhere(page, text, target)]


def _leads_somewhere(page: Path, text: str, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if page.is_relative_to(DOCS) and not there.is_relative_to(DOCS):
        return False
    if path:
        if not there.is_file():
            return there.is_relative_to(DOCS) and there.relative_to(DOCS).as_posix() in GENERATED
        text = there.read_text(encoding="utf-8") if anchor else ""
    return not anchor or anchor in anchors(text)


def test_every_link_of_a_page_leads_somewhere() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    texts |= {DOCS / name: make() for name, make in GENERATED.items()}
    assert {page.name: found for page, text in texts.items() if (found := dead(page, text))} == {}


def test_a_dead_link_is_found() -> None:
    page = DOCS / "any.md"
    text = "[a](gone.md), [b](box.md#no-such-part), [c](../README.md), [d](box.md), `[e](gone.md)`"
    assert dead(page, text) == ["gone.md", "box.md#no-such-part", "../README.md"]


def test_every_page_of_the_site_is_reached_from_its_navigation() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES if path.is_relative_to(DOCS)}
    texts |= {DOCS / name: make() for name, make in GENERATED.items()}
    shown = re.findall(
        r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    reached, new = set[Path](), {DOCS / name for name in shown}
    while new:
        reached |= new
        led = {
            (page.parent / target.partition("#")[0]).resolve()
            for page in new
            for target in links(texts[page])
        }
        new = (led & texts.keys()) - reached
    assert sorted(page.name for page in texts.keys() - reached) == []
