"""`vastrun schema`: print the JSON Schema of job files, batch files and --json documents.

Pydantic makes the schemas of documents from the dataclasses that are printed.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from operator import or_
from typing import Any

import click
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import core_schema

from vastrun.launcher.cli.bugreport import BugReport
from vastrun.launcher.cli.config import SettingsDocument
from vastrun.launcher.cli.doctor import Findings
from vastrun.launcher.cli.downloads import CheckpointExport, PullDocument
from vastrun.launcher.cli.image import Images
from vastrun.launcher.cli.output import say
from vastrun.launcher.cli.rehearse import RehearsalDocument
from vastrun.launcher.cli.report import Differences, ReportFile
from vastrun.launcher.config.json_schema import PAGES, REFERENCES, Draft7, Schema, file_schema, to_text, whole
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.runs import HIDDEN
from vastrun.launcher.cost.statement import CostReport
from vastrun.launcher.package_files import page
from vastrun.launcher.ui.document import SCHEMA_VERSION
from vastrun.launcher.ui.render.batch import BatchDetails, BatchList, BatchPlanDocument, Results
from vastrun.launcher.ui.render.costs import Costs, Hosts, Orphans, ReconciliationDocument
from vastrun.launcher.ui.render.loglines import LogLine
from vastrun.launcher.ui.render.plan import MarketReportDocument, PlanDocument
from vastrun.launcher.ui.render.runs import ExplanationDocument, ResultFile, RunDetails, RunEndDocument, Runs
from vastrun.launcher.ui.render.why import BatchExplanation

RESULT = "result"
"""The file of that name in a run's folder; all others are commands."""
DOCUMENTS: Mapping[str, tuple[type, ...]] = {
    "attach": (RunEndDocument,),
    "batch-results": (Results,),
    "batch-resume": (Results,),
    "batch-retry": (Results,),
    "batch-status": (BatchList, BatchDetails),
    "batch-submit": (Results, BatchPlanDocument),
    "batch-watch": (Results,),
    "bugreport": (BugReport,),
    "config": (SettingsDocument,),
    "cost": (Costs, CostReport),
    "cost-reconcile": (ReconciliationDocument,),
    "diff": (Differences,),
    "doctor": (Findings,),
    "export": (CheckpointExport,),
    "hold": (RunEndDocument,),
    "hosts": (Hosts,),
    "image-ls": (Images,),
    "launch": (RunEndDocument, PlanDocument),
    "logs": (LogLine,),
    "plan": (PlanDocument, MarketReportDocument),
    "pull": (PullDocument,),
    "reap": (Orphans,),
    "rehearse": (RehearsalDocument,),
    "report": (ReportFile,),
    RESULT: (ResultFile,),
    "resume": (RunEndDocument,),
    "status": (Runs, RunDetails),
    "stop": (RunEndDocument,),
    "sweep": (Results, BatchPlanDocument),
    "wait": (RunEndDocument,),
    "why": (ExplanationDocument, BatchExplanation),
}
"""Documents that a command may print with --json."""
WITHOUT_VERSION = ("logs",)
"""These do not state the version of their form: each line is one document."""

_CONFIG = ConfigDict(use_attribute_docstrings=True, extra="forbid")


@click.command("schema")
@click.argument("words", metavar="[job|batch|COMMAND]", nargs=-1)
def command(words: tuple[str, ...]) -> None:
    """Print the JSON Schema (draft-07) of job files, batch files or the --json output of a command.

    Without an argument, list all schemas. An editor with a YAML language server completes and checks a file
    whose first line names its schema:

    \b
      vastrun schema job > job.schema.json
      # yaml-language-server: $schema=job.schema.json

    For the output of a command:

    \b
      vastrun schema status
      vastrun schema batch results

    `result` is the schema of result.json, which is next to a run's outputs.
    """
    names = (*PAGES, *DOCUMENTS)
    if not words:
        say("\n".join(name.replace("-", " ") for name in names))
        return
    name = "-".join(words)
    if name not in names:
        raise UsageError(f"there is no schema for {' '.join(words)}", hint="vastrun schema lists them")
    schema = file_schema(name, page(PAGES[name])) if name in PAGES else document_schema(name)
    say(to_text(schema).rstrip("\n"))


def document_schema(name: str) -> Schema:
    """Return the schema of what a command prints."""
    kinds = DOCUMENTS[name]
    found = _schema_of(reduce(or_, kinds))
    if name not in WITHOUT_VERSION:
        version = {"description": "Version of the form of this document", "const": SCHEMA_VERSION}
        for top in (found["$defs"][kind.__name__] for kind in kinds):
            top["properties"] = {"schema_version": version, **top["properties"]}
            top["required"] = ["schema_version", *top["required"]]
    return whole(
        "result.json of a run" if name == RESULT else f"vastrun {name.replace('-', ' ')} --json", found
    )


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Adapt a list of `kind`: pydantic takes no configuration for a dataclass itself."""
    return TypeAdapter(list[kind], config=_CONFIG)


def _schema_of(kind: Any) -> Schema:
    return _adapter(kind).json_schema(
        mode="serialization", schema_generator=_PrintedKeys, ref_template=REFERENCES
    )


class _PrintedKeys(Draft7):
    """Writes what `keys_of` prints: every key is there, and no other."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        """Add printed properties, take out what is hidden, and describe inherited fields."""
        found, kind = super().dataclass_schema(schema), schema["cls"]
        for name in getattr(kind, "printed_properties", ()):
            found["properties"][name] = self._property(inspect.getattr_static(kind, name))
        for field in fields(kind):
            if field.metadata == HIDDEN:
                del found["properties"][field.name]
        for base in filter(is_dataclass, kind.__mro__[1:]):
            for name, above in _schema_of(base)["$defs"][base.__name__]["properties"].items():
                if name in found["properties"] and "description" in above:
                    found["properties"][name].setdefault("description", above["description"])
        return {**found, "required": list(found["properties"])}

    def _property(self, found: Any) -> Schema:
        hint = typing.get_type_hints(found.fget)["return"]
        schema = self.generate_inner(_adapter(hint).core_schema)["items"]
        return {**schema, "description": inspect.getdoc(found)} if inspect.getdoc(found) else schema

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        """Leave defaults out: they are printed, too."""
        return self.generate_inner(schema["schema"])
