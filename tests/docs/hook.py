"""mkdocs calls this: pages that are made as the site is built, and a last look that it asks no other host."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.docs.generated import GENERATED
from tests.schemas import published

_FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
"""What a browser asks for by itself; a link waits until somebody clicks it."""
_NAMED = re.compile(r"\[[\w/-]+\.md\]\((?P<path>[^)#]+\.md)(?P<anchor>[^)]*)\)")
"""A link that bears the name of its file, as is usual where pages are read as files."""
_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
"""As the theme writes it: without a name that a screen reader could say."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and the schemas."""
    for name, make in GENERATED.items():
        files.append(File.generated(config, name, content=make()))
    for name, text in published():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links that bear the titles of pages."""
    folder = Path(config.docs_dir, page.file.src_uri).parent
    return _NAMED.sub(
        lambda found: f"[{_title(folder / found['path'])}]({found['path']}{found['anchor']})", markdown
    )


def _title(page: Path) -> str:
    """Return what stands above a page, as far as a colon."""
    if not page.is_file():
        return page.stem
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Return the page with a name for its search."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError where a page would ask another host."""
    for page in Path(config.site_dir).rglob("*.html"):
        asked = _FETCHED.search(page.read_text(encoding="utf-8"))
        if asked:
            raise PluginError(f"{page.name} asks another host: {asked.group()}")
