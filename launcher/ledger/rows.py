"""Rows of the ledger: what a run becomes as a row, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from launcher.core import (
    Cause,
    Cost,
    ExtraRates,
    Forecast,
    MeasuredRun,
    Meter,
    Offer,
    Phase,
    Proof,
    Rental,
    Run,
)
from launcher.gate import caps
from launcher.ledger.database import Row
from trainer.contract.records import as_json, whole_unicode

_FIELDS = tuple(field.name for field in fields(Run))
COLUMNS = (*_FIELDS, "held_usd")
"""Of the table `runs` (`schema.py`): each field of Run is one. `held_usd`: as `bills.held_usd` when it was
written, for the sums of budgets."""


def row_of(run: Run) -> dict[str, Any]:
    """Return the run's columns, but for what it holds of budgets."""
    row = dict(vars(run))
    row["detail"] = storable(run.detail)
    row["offer"] = None if run.offer is None else as_json(run.offer)
    row["proofs"] = as_json(run.proofs)
    row["meter"] = as_json(run.meter)
    row["charged"] = None if run.charged is None else as_json(run.charged)
    row["rentals"] = as_json(run.rentals)
    return row


def storable(text: str) -> str:
    """Make of any text one that can be written: why a run failed must be, whatever is in the reason."""
    return whole_unicode(text[: caps.DETAIL_CHARACTERS])


def run_of(row: Row) -> Run:
    """Read a run from its row."""
    values = {name: row[name] for name in _FIELDS}
    values["phase"] = Phase(row["phase"])
    values["cause"] = None if row["cause"] is None else Cause(row["cause"])
    values["failed_in"] = None if row["failed_in"] is None else Phase(row["failed_in"])
    values["offer"] = None if row["offer"] is None else _offer_of(json.loads(row["offer"]))
    values["meter"] = Meter(**_with_extras(json.loads(row["meter"])))
    values["charged"] = None if row["charged"] is None else Cost(**json.loads(row["charged"]))
    values["rentals"] = tuple(map(_rental_of, json.loads(row["rentals"])))
    values["proofs"] = tuple(Proof(**proof) for proof in json.loads(row["proofs"]))
    return Run(**values)


def measured_of(row: Row) -> MeasuredRun:
    """Read what a run has shown of its machine from these columns of its row."""
    offer = json.loads(row["offer"])
    return MeasuredRun(
        provider=row["provider"],
        host=row["host"],
        gpu_name=offer["gpu_name"] or "",
        gpus=offer["gpus"],
        gpu_memory_gb=offer["gpu_memory_gb"],
        spec_json=row["spec_json"],
        steps_per_s=row["steps_per_s"],
        boot_s=row["boot_s"],
        bid_hours=_hours(row) if offer.get("bid_usd_per_hour") is not None else 0.0,
        preempted=row["cause"] == Cause.PREEMPTED,
    )


def _hours(row: Row) -> float:
    """Return the hours for which the run's machine was rented; 0 while it is."""
    rented_at, released_at = row["rented_at"], row["released_at"]
    return max(0.0, released_at - rented_at) / 3600 if rented_at and released_at else 0.0


def _offer_of(values: dict[str, Any]) -> Offer:
    forecast = values["forecast"]
    return Offer(**{**_with_extras(values), "forecast": forecast and Forecast(**forecast)})


def _rental_of(values: dict[str, Any]) -> Rental:
    return Rental(**{**values, "meter": Meter(**_with_extras(values["meter"]))})


def _with_extras(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "extras": ExtraRates(**values["extras"])}
