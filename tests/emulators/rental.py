"""What a client asks for when it rents, checked as Vast checks it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.emulators.answers import ApiError, refusal

MAX_COMMAND = 4096
MAX_ENV = 32768
_MAX_PORTS = 64


@dataclass(frozen=True, kw_only=True)
class Rental:
    """The body of a create call."""

    image: str
    disk_gb: float
    label: str | None = None
    onstart: str = ""
    env: Mapping[str, str]
    """Docker flags among it, such as `-p 8000:8000`."""
    runtype: str = "ssh_proxy"
    bid_usd: float | None = None
    cancel_unavail: bool = False

    @property
    def direct(self) -> bool:
        """Whether port 22 is published on the machine's own address."""
        return "direc" in self.runtype

    @property
    def variables(self) -> dict[str, str]:
        """The environment without docker flags."""
        return {name: value for name, value in self.env.items() if not name.startswith("-")}

    @property
    def networks(self) -> list[str]:
        """The overlay networks that it joins."""
        return [name.split(None, 1)[1] for name in self.env if name.startswith("-n ")]

    @property
    def published(self) -> list[str]:
        """Container ports to publish, as `8000/tcp`."""
        flags = [name.split(None, 1)[1] for name in self.env if name.startswith("-p ")]
        inner = [flag.rpartition(":")[2] for flag in flags]
        return [port if "/" in port else f"{port}/tcp" for port in inner]


def read_rental(body: Mapping[str, Any]) -> Rental:
    """The rental, or ApiError (400) for the first thing that is wrong with it."""
    env = body.get("env")
    rental = Rental(
        image=str(body.get("image") or ""),
        disk_gb=_number(body, "disk", 10.0),
        label=body.get("label"),
        onstart=body.get("onstart") or "",
        env={str(name): str(value) for name, value in env.items()} if isinstance(env, Mapping) else {},
        runtype=body.get("runtype") or "ssh_proxy",
        bid_usd=None if body.get("price") is None else _number(body, "price", 0.0),
        cancel_unavail=bool(body.get("cancel_unavail", True)),
    )
    _check(rental)
    return rental


def _check(rental: Rental) -> None:
    faults = (
        (not rental.image, "image is required"),
        (len(rental.image) > 1024, "image is longer than 1024"),
        (len(rental.onstart) > MAX_COMMAND, f"onstart is longer than {MAX_COMMAND}"),
        (len(rental.label or "") > 256, "label is longer than 256"),
        (any(len(name) > 256 for name in rental.env), "an env name is longer than 256"),
        (sum(len(k) + len(v) for k, v in rental.env.items()) > MAX_ENV, f"env is longer than {MAX_ENV}"),
        (len(rental.published) > _MAX_PORTS, f"more than {_MAX_PORTS} ports"),
        (rental.disk_gb < 8, "disk must be at least 8 GB"),
    )
    for wrong, text in faults:
        if wrong:
            raise _invalid(text)
    if rental.bid_usd is not None and not 0.001 <= rental.bid_usd <= 128:
        raise refusal(400, "invalid_price", "error 400/3470: price must be between 0.001 and 128")


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    try:
        return default if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise _invalid(f"{name} must be a number") from error


def _invalid(text: str) -> ApiError:
    return refusal(400, "invalid_args", f"error 400/3467: {text}")
