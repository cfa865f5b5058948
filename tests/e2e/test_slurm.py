"""Runs on a real Slurm of this computer, by the installed command: they train, wait for a node, and end."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.slurm import NODES, Slurm
from tests.waiting import eventually

pytestmark = pytest.mark.needs("slurm")
SCRIPT = ("launch", str(JOBS / "script.yaml"), "--provider", "slurm", "--set", "ranks=1", *WITH_STUB_TORCH)
WAITS = (*SCRIPT, "--set", "command=python script.py waits")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with Slurm(slurmd_timeout_s=8) as cluster:
        yield cluster


@pytest.fixture
def user(tmp_path: Path, cluster: Slurm) -> Iterator[Terminal]:
    """A terminal on the cluster's login node."""
    terminal = Terminal(tmp_path, **cluster.variables)
    yield terminal
    terminal.clean()
    cluster.repair()


def job_of(terminal: Terminal, cluster: Slurm) -> tuple[int, str]:
    """The number of the job of the newest run, and its node."""
    label = f"vastrun-{terminal.outputs().name}"
    found = eventually(lambda: cluster.job_of(label), what="a job")
    return found, cluster.run("squeue", "-h", "-j", str(found), "-o", "%N").strip()


def boxes(terminal: Terminal) -> list[str]:
    """Folders that are still on the shared disk."""
    return [path.name for path in (terminal.state / "vastrun" / "slurm").glob("[!.]*")]


def left(terminal: Terminal, cluster: Slurm) -> list[str]:
    """What of the user's goes on, or lies about.

    Slurm ends the programs of a job by and by: one of several nodes is listed for a moment after its end.
    """
    return [*boxes(terminal), *terminal.leftovers(), *cluster.run("squeue", "-h").splitlines()]


def is_clean(terminal: Terminal, cluster: Slurm) -> bool:
    return not left(terminal, cluster)


@pytest.mark.slow
@pytest.mark.torch
def test_a_training_succeeds_as_on_this_computer(user: Terminal, cluster: Slurm) -> None:
    done = user.type("launch", str(JOBS / "learn.yaml"), "--provider", "slurm")
    assert done.exit_code == 0, done.err
    assert "verdict   SUCCEEDED" in done.out
    assert (user.outputs() / "checkpoints" / "step-000030" / "manifest.json").exists()
    assert left(user, cluster) == []


@pytest.mark.slow
@pytest.mark.torch
def test_two_nodes_train_as_one_node_does_and_all_are_given_back(user: Terminal, cluster: Slurm) -> None:
    losses = []
    for nodes, ranks, strategy in ((1, 4, "ddp"), (2, 2, "ddp"), (2, 2, "fsdp2")):
        split = ("--set", f"nodes={nodes}", "--set", f"ranks={ranks}", "--set", f"train.strategy={strategy}")
        launch = user.start("launch", str(JOBS / "learn.yaml"), "--provider", "slurm", *split)
        launch.shows("step 5/30")
        assert [cluster.size_of("vastrun-"), len(boxes(user))] == [nodes, nodes]
        done = launch.end()
        assert done.exit_code == 0, done.err
        eventually(lambda: is_clean(user, cluster), what="a clean cluster")
        lines = (user.outputs() / "metrics.jsonl").read_text().splitlines()
        losses.append([record["loss"] for record in map(json.loads, lines) if "loss" in record])

    assert len(losses[0]) > 1
    for of_two in losses[1:]:
        assert of_two == pytest.approx(losses[0], abs=1e-6)


def test_a_program_succeeds_and_neither_job_nor_folder_is_left(user: Terminal, cluster: Slurm) -> None:
    done = user.type(*SCRIPT)
    assert done.exit_code == 0, done.err
    assert (user.outputs() / "outputs" / "result.txt").read_text() == "42\n"
    assert left(user, cluster) == []


def preempt(cluster: Slurm, _job: int, _node: str) -> None:
    cluster.run("sbatch", "--partition=urgent", "--exclusive", "-N2", "-t1", "-o/dev/null", "--wrap=sleep 5")


def cancel(cluster: Slurm, job: int, _node: str) -> None:
    cluster.run("scancel", str(job))


def set_down(cluster: Slurm, _job: int, node: str) -> None:
    cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def break_down(cluster: Slurm, _job: int, node: str) -> None:
    """The node falls silent with all that ran there."""
    cluster.kill_node(node)
    ours = [process for process in psutil.process_iter() if is_on(node, process, cluster)]
    # Slurm's own first: nobody tells the controller how the rest ended.
    above = [parent for process in ours if (parent := process.parent()) and parent.name() == "slurmstepd"]
    for process in (*above, *ours):
        with contextlib.suppress(psutil.Error):
            process.kill()


def is_on(node: str, process: psutil.Process, cluster: Slurm) -> bool:
    """Whether a job of that cluster started it there."""
    with contextlib.suppress(psutil.Error):
        environ, conf = process.environ(), cluster.variables["SLURM_CONF"]
        return environ.get("SLURMD_NODENAME") == node and environ.get("SLURM_CONF") == conf
    return False


def shorten(cluster: Slurm, job: int, _node: str) -> None:
    cluster.run("scontrol", "update", f"jobid={job}", "timelimit=1")


def signal_end(cluster: Slurm, job: int, _node: str) -> None:
    cluster.run("scancel", "--batch", "--signal=TERM", str(job))


@pytest.mark.parametrize(
    ("strike", "verdict", "said", "code"),
    [
        (cancel, "LOST", "was cancelled (scancel), but not by this launcher", 7),
        (preempt, "PREEMPTED", "was preempted by another job", 7),
        (signal_end, "PREEMPTED", "received SIGTERM before its time limit", 7),
        (shorten, "LIMIT", "time limit", 9),
        (set_down, "LOST", "ended with its node, which failed or was set down", 7),
        (break_down, "LOST", "ended with its node", 7),
    ],
)
@pytest.mark.slow
def test_a_run_whose_job_slurm_ends_says_why_and_brings_home_what_there_is(
    strike: Callable[[Slurm, int, str], None],
    verdict: str,
    said: str,
    code: int,
    user: Terminal,
    cluster: Slurm,
) -> None:
    launch = user.start(*WAITS)
    launch.shows("step 3")
    job, node = job_of(user, cluster)
    strike(cluster, job, node)
    done = launch.end()

    assert done.exit_code == code, done.err
    assert f"verdict   {verdict}: " in done.out
    assert said in user.type("why", "last").out
    assert "step 3" in (user.outputs() / "log.txt").read_text()
    assert boxes(user) == []


@pytest.mark.slow
def test_a_run_whose_folder_is_not_here_is_not_lost_and_is_judged_where_it_is(
    user: Terminal, cluster: Slurm
) -> None:
    launch = user.start(*WAITS)
    launch.shows("step 3")
    job, _ = job_of(user, cluster)
    launch.kill()
    cancel(cluster, job, "")
    eventually(lambda: not cluster.run("squeue", "-h"), what="the end of the job")
    folder = user.state / "vastrun" / "slurm"
    folder.rename(folder.with_name("away"))
    refused = user.type("resume", "last")
    assert refused.exit_code == 4
    assert f"the run's folder {folder} (slurm.folder when it began) is not on this computer" in refused.err
    assert user.status()["run"]["phase"] == "train"

    folder.with_name("away").rename(folder)
    assert user.type("config", "set", "slurm.folder", str(user.folder / "elsewhere")).exit_code == 0
    done = user.type("resume", "last")

    assert "was cancelled (scancel), but not by this launcher" in done.out
    assert "step 3" in (user.outputs() / "log.txt").read_text()
    assert left(user, cluster) == []


@pytest.mark.slow
def test_a_slurmd_that_is_killed_and_comes_back_ends_no_training(user: Terminal, cluster: Slurm) -> None:
    launch = user.start(*WAITS)
    launch.shows("step 3")
    _, node = job_of(user, cluster)
    cluster.kill_node(node)
    time.sleep(2)
    cluster.start_node(node)
    eventually(lambda: "step 60" in (user.outputs() / "log.txt").read_text(), what="a training that goes on")

    assert user.type("stop", "last").exit_code == 0
    assert launch.end().exit_code == 3
    eventually(lambda: is_clean(user, cluster), what="a clean cluster")


TWO = (*SCRIPT, "--set", "nodes=2", "--set", "command=python script.py waits")


def test_two_nodes_that_are_not_both_idle_are_one_partition_and_the_plan_says_when_they_start(
    user: Terminal, cluster: Slurm
) -> None:
    cluster.run("sbatch", "-o/dev/null", "-t3", "-c5", "--nodelist=n1", "--wrap=sleep 300")
    cluster.run("scontrol", "update", "partitionname=urgent", "maxtime=1")
    try:
        eventually(lambda: "mixed" in cluster.run("sinfo", "-h", "-o", "%T"), what="a node at work")
        planned = user.type("plan", *TWO[1:])
        assert "2 machines, each Slurm, debug: 1 cores" in planned.out
        assert "cores, 0 GB memory; starts now" in planned.out
        assert "debug: starts now\n" in planned.out
        assert "urgent: 0.1 h needed, 0.0167 h allowed\n" in planned.out
        assert "starts in " in user.type("plan", *TWO[1:], "--set", "resources.cpu_cores=8").out
        refused = user.type("plan", *TWO[1:], "--set", "nodes=3")
    finally:
        cluster.run("scontrol", "update", "partitionname=urgent", "maxtime=60")
    assert refused.exit_code == 8
    assert "debug: allocation failure: Requested node configuration is not available (3 nodes" in refused.err


@pytest.mark.slow
def test_a_job_on_a_drained_cluster_waits_says_why_and_is_cancelled_by_its_users_stop(
    user: Terminal, cluster: Slurm
) -> None:
    for node in NODES:
        cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=maintenance")
    launch = user.start(*TWO)
    launch.shows("GB memory; waits: nodes are down or drained")
    launch.shows("[n1] 2 machines, each Slurm, debug: ")
    launch.shows("waits for its turn: ")
    launch.shows("min more at most")

    assert user.type("stop", "last").exit_code == 0
    done = launch.end()

    assert done.exit_code == 3, done.err
    assert cluster.job_of("vastrun-") is None
    assert boxes(user) == []


@pytest.mark.slow
def test_who_leaves_a_queue_keeps_the_place_and_the_run_ends_well(user: Terminal, cluster: Slurm) -> None:
    for node in NODES:
        cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=maintenance")
    launch = user.start(*SCRIPT)
    launch.shows("waits for its turn: ")
    job = cluster.job_of("vastrun-")
    launch.send(signal.SIGHUP)
    assert launch.end().exit_code == 0
    assert "detaching: continue without this command; the place in a queue is kept" in launch.err
    attached = user.start("attach", "last")
    attached.shows("is driven by another launcher")
    attached.send(signal.SIGTERM)
    assert attached.end().exit_code == 0
    assert "the training continues" not in attached.err
    detached = user.start(*SCRIPT, "-d").end()  # which does not train yet
    assert detached.exit_code == 0
    assert user.type("stop", "last", "--now").exit_code == 0
    assert cluster.job_of("vastrun-") == job

    cluster.repair_nodes()
    first = next(folder.name for folder in (user.folder / "runs").iterdir() if folder != user.outputs())
    assert user.type("wait", first).exit_code == 0
    eventually(lambda: is_clean(user, cluster), what="a clean cluster")


@pytest.mark.slow
def test_a_node_of_two_without_power_is_lost_once_slurm_says_so(terminal: Terminal) -> None:
    with Slurm(slurmd_timeout_s=60) as cluster:
        terminal.variables |= cluster.variables
        launch = terminal.start(*TWO, "--set", "retry.lost=1")
        launch.shows("[n1] training: ")
        first = terminal.outputs().name
        break_down(cluster, 0, "n2")
        launch.shows("waiting for the provider's word about node 1", within_s=200.0)
        launch.shows(" ended with lost for $0.000; this is ")
        why = terminal.type("why", first).out
        assert "LOST: node 1: Slurm's job " in why, launch.err
        assert "ended with its node n2, which failed or was set down" in why
        assert terminal.type("stop", "last").exit_code == 0
        assert launch.end().exit_code == 3
        assert "not by this launcher" not in launch.err
        eventually(lambda: is_clean(terminal, cluster), what="a clean cluster")


@pytest.mark.slow
def test_a_node_of_two_that_fails_before_the_training_leaves_nothing(user: Terminal, cluster: Slurm) -> None:
    """Where a node was not ready yet, the run is tried again on other machines."""
    launch = user.start(*TWO)
    launch.shows("[n1] the lease is armed")
    set_down(cluster, 0, "n2")
    launch.shows("which failed or was set down")
    eventually(
        lambda: launch.process.poll() is not None or "attempt 2: " in launch.err,
        what="an end, or another attempt",
    )
    if launch.process.poll() is None:
        user.type("stop", "last")

    assert launch.end().exit_code in (3, 7)
    eventually(lambda: is_clean(user, cluster), what="a clean cluster")
