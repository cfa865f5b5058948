"""mkdocs calls this: pages of the site that are made as it is built."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tests.docs.generated import GENERATED


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, make in GENERATED.items():
        files.append(File.generated(config, name, content=make()))
    return files
