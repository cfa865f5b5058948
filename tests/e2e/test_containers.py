"""The roads through containers, with the installed command and this checkout's image: Docker's and Vast's."""

from pathlib import Path

import pytest

from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Terminal
from tests.e2e.test_nodes import ONE_NODE, TWO_NODES, train
from tests.e2e.test_nodes import losses as of_nodes
from tests.e2e.test_vast_launch import ON_VAST, QUICKSTART, losses, names, told
from tests.emulators.vast import VastEmulator
from tests.parts import BASE_IMAGE

docker = pytest.importorskip("docker")
REPOSITORY = "127.0.0.1:5000/vastrun"
pytestmark = [pytest.mark.needs("docker"), pytest.mark.torch]


@pytest.fixture
def image(terminal: Terminal) -> str:
    """Built of this checkout; quick once it was, as by tests/docker/image.sh."""
    options = ("--variant", "cpu", "--base", BASE_IMAGE, "--repository", REPOSITORY)
    built = terminal.type("image", "build", *options, within_s=500)
    assert built.exit_code == 0, built.err
    return built.out.strip()


def containers_of(outputs: Path) -> list[str]:
    """Those of the run with these outputs, in whatever state."""
    label = {"label": f"io.vastrun.label=vastrun-{outputs.name}"}
    found = docker.from_env().containers.list(all=True, filters=label, ignore_removed=True)
    return [one.name for one in found]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quickstart_in_containers_ends_as_it_does_on_this_computer(
    terminal: Terminal, tmp_path: Path, image: str
) -> None:
    here = terminal.type("launch", *QUICKSTART)
    assert here.exit_code == 0, here.err
    with VastEmulator(machines(4), pace=LOADING, image=image) as vast:
        in_docker, on_vast = tmp_path / "docker", tmp_path / "vast"
        for folder, account, options in (
            (in_docker, {}, ("--provider", "docker", "--set", f"image={image}")),
            (on_vast, vast.variables, ON_VAST),
        ):
            folder.mkdir()
            there = Terminal(folder, **account)
            done = there.type("launch", *QUICKSTART, *options)
            assert done.exit_code == 0, done.err
            assert there.status()["run"]["verdict"] == "SUCCEEDED"
            assert losses(there.outputs()) == losses(terminal.outputs())
            assert told(there.outputs()) == told(terminal.outputs())
            # Vast alone has a script that starts the box.
            assert names(there.outputs()) - {"onstart.sh"} == names(terminal.outputs())
            assert containers_of(there.outputs()) == []
            there.clean()
        assert len(vast.instances) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_containers_on_their_own_network_learn_as_one_box_of_four(terminal: Terminal, image: str) -> None:
    assert train(terminal, *ONE_NODE, "--out", "one").exit_code == 0
    in_docker = (*TWO_NODES, "--provider", "docker", "--set", f"image={image}")
    for strategy in ("ddp", "fsdp2"):
        done = train(terminal, *in_docker, "--set", f"train.strategy={strategy}", "--out", strategy)

        assert done.exit_code == 0, done.err
        assert of_nodes(terminal, strategy) == pytest.approx(of_nodes(terminal, "one"), abs=1e-6)
        run_id = terminal.status()["run"]["id"]
        assert [one.name for one in docker.from_env().networks.list() if run_id in one.name] == []
        assert containers_of(Path(run_id)) == []


ELSEWHERE = """
name: elsewhere
resources: {gpus: 0, disk_gb: 8}
limits: {hours: 0.2}
ranks: 1
outputs_gb: 0.1
command: |
  mkdir -p ~/out /data/run
  head -c 20000000 /dev/urandom >~/out/model.pt
  head -c 120000000 /dev/urandom >/data/run/large.pt
  echo done
success: {log: done}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_weights_outside_of_the_folder_come_home_or_keep_the_machine(terminal: Terminal, image: str) -> None:
    (terminal.folder / "job.yaml").write_text(ELSEWHERE)
    launch = terminal.start("launch", "job.yaml", "-y", "--provider", "docker", "--set", f"image={image}")
    launch.shows("these look like weights and are only on the machine")
    assert "data/run/large.pt (120.0 MB, outputs_gb is 0.1)" in launch.err
    assert "large.pt" in terminal.type("why", "last").out
    assert containers_of(terminal.outputs()) != []

    pulled = terminal.type("pull", "last", "run/outputs/elsewhere/data/run/large.pt", "--json").json()

    assert (pulled["files"], pulled["bytes"]) == (1, 120_000_000)
    done = launch.end()
    assert done.exit_code == 0, done.err
    (small,) = (terminal.outputs() / "outputs" / "elsewhere").rglob("model.pt")
    assert small.stat().st_size == 20_000_000
    assert containers_of(terminal.outputs()) == []
