"""The pins of each variant, as the Dockerfile names them at its top."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.core.errors import ImageError, UsageError

CHECKOUT = Path(__file__).resolve().parents[2]
VARIANTS = ("cpu", "cu130", "cu126")
_ARG = re.compile(r"^ARG (\w+)=(\S*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Pins:
    """Pinned versions of one variant."""

    variant: str
    base: str
    """The image to build on."""
    torch: str
    cuda: str
    """Empty: it trains on the CPU."""
    nccl: str
    """Empty: not compared."""

    @property
    def target(self) -> str:
        """The Dockerfile's last stage."""
        return "cuda" if self.cuda else "cpu"


def pins_of(variant: str, root: Path = CHECKOUT) -> Pins:
    """Read a variant's pins.

    Raises ImageError where there is no Dockerfile, UsageError for another variant.
    """
    try:
        text = (root / "Dockerfile").read_text(encoding="utf-8")
    except OSError as error:
        hint = "build from a checkout; the images that come with vastrun need no build: vastrun image ls"
        raise ImageError(f"there is no Dockerfile in {root}", hint=hint) from error
    arguments = dict(_ARG.findall(text))
    suffix = variant.upper()
    try:
        return Pins(
            variant=variant,
            base=arguments[f"BASE_{suffix}"],
            torch=arguments["TORCH"],
            cuda=arguments[f"CUDA_{suffix}"],
            nccl=arguments[f"NCCL_{suffix}"],
        )
    except KeyError as error:
        raise UsageError(f"the Dockerfile has no variant {variant}", hint=", ".join(VARIANTS)) from error
