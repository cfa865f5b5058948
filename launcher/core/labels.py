"""Labels: a machine's label contains the id of its run and, on shared providers, of its ledger."""

from __future__ import annotations

import re

LABEL_PREFIX = "vastrun-"
_NODE_SUFFIX = re.compile(r"(?<=-[0-9a-f]{4})-n[0-9]{1,2}(-[0-9]{1,3})?$", re.ASCII)
_WITH_LEDGER = re.compile(re.escape(LABEL_PREFIX) + r"[^.]+\.([0-9a-f]{8})")


def label_of(run_id: str, ledger: str) -> str:
    """Return the label of a run's machine; `ledger`: empty where only its own launchers see the machine."""
    return f"{LABEL_PREFIX}{run_id}.{ledger}" if ledger else LABEL_PREFIX + run_id


def member_id(run_id: str, node: int, machine: int = 1) -> str:
    """Return the id of the row of that node, like `calm-heron-3f1a-n1`; node 0 is the run itself.

    `machine`: number of the node's machine; a replacement has its own row, like `calm-heron-3f1a-n1-2`.
    """
    own = f"{run_id}-n{node}" if node else run_id
    return own if machine == 1 else f"{own}-{machine}"


def member_folder(run_id: str, member: str) -> str:
    """Return the subfolder of a node, like `node-1`; of its second machine `node-1-2`."""
    return f"node-{member.removeprefix(f'{run_id}-n')}"


def leader_id(name: str) -> str:
    """Return the id of the run where `name` is the id of one of its nodes, else `name`."""
    return _NODE_SUFFIX.sub("", name)


def run_id_in(label: str) -> str:
    """Return the id of the run in the label."""
    return label.removeprefix(LABEL_PREFIX).partition(".")[0]


def ledger_in(label: str) -> str | None:
    """Return the id of the ledger in the label; None where it has none."""
    found = _WITH_LEDGER.fullmatch(label)
    return found[1] if found else None
