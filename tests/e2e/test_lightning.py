"""A Lightning program under the supervisor: the example that is shipped."""

import pytest

from tests.e2e.terminal import Terminal
from vastrun.launcher.package_files import configs_dir

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_a_lightning_program_trains_and_is_proven_by_heartbeats_log_and_file(terminal: Terminal) -> None:
    # The set-up command would ask an index for what is installed here.
    job = str(configs_dir() / "lightning.yaml")
    done = terminal.type("launch", job, "--set", "setup=[]", "--json")

    assert done.exit_code == 0, done.err
    outcome = terminal.outcome()
    assert {check["name"]: check["holds"] for check in outcome["checks"]} == dict.fromkeys(
        ("files", "log", "steps"), True
    )
    assert [(rank["rank"], rank["step"]) for rank in outcome["ranks"]] == [(0, 200), (1, 200)]
    assert list(terminal.outputs().rglob("model.ckpt"))
    assert terminal.leftovers() == []
