"""Build hook: the README of a package has absolute links, as soon as `project.urls` names the repository.

A package index shows the README without the files beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Set `project.readme`, with the pages and pictures of the version's tag."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        if repository:
            tag = f"v{metadata['version']}"
            text = _RELATIVE.sub(lambda found: f"]({_address(repository.rstrip('/'), tag, found[1])})", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _address(repository: str, tag: str, path: str) -> str:
    kind = "raw" if path.endswith(".png") else "blob"
    return f"{repository}/{kind}/{tag}/{path}"
