"""Partitions as offers: GPUs by GRES, prices by the settings, and what a partition lacks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs import train_job
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import END, StartEstimate, parse_partitions
from vastrun.launcher.providers.slurm.offers import NodeShare, partition_offers

SINFO = """\
cpu*|up|1-00:00:00|2|64|256000|mixed|(null)
cpu*|up|1-00:00:00|6|64|256000|idle|(null)
gpu|up|infinite|4|64|512000|allocated|gpu:a100:8(S:0-1),nvme:2
gpu|up|infinite|2|48+|256000+|idle|gpu:v100:4
old|up|4:00:00|9|32|1|idle|gpu:2
broken|up|infinite|3|64|512000|drained*|gpu:a100:8
closed|down|infinite|3|64|512000|idle|gpu:a100:8
"""
PARTITIONS = parse_partitions(f"{SINFO}{END}\n")


def job(gpus: int = 0, hours: float = 2.0, **resources: Any) -> JobSpec:
    return train_job(resources=Resources(gpus=gpus, disk_gb=8.0, **resources), limits=Limits(hours=hours))


NONE = StartEstimate(refusal="Requested node configuration is not available")
AT_ONCE = StartEstimate(wait_s=0.0)
NO = StartEstimate(refusal="Invalid account")


def answers(**by_partition: StartEstimate) -> Callable[[Sequence[Sequence[str]]], list[StartEstimate]]:
    """The scheduler's answers by partition; it starts a job at once in the others."""
    known = {"broken": NO, "closed": NO} | by_partition
    return lambda jobs: [known.get(job[0].removeprefix("--partition="), AT_ONCE) for job in jobs]


def ids(spec: JobSpec, **by_partition: StartEstimate) -> list[str]:
    offers, _ = partition_offers(spec, PARTITIONS, SlurmSettings(), 100.0, answers(**by_partition))
    return [offer.id for offer in offers]


def test_a_job_with_gpus_gets_its_part_of_a_node_s_cores_and_memory() -> None:
    assert ids(job(2)) == [
        "old/122min/32c/2xgpu",
        "gpu/122min/16c/128000M/2xa100",
        "gpu/122min/24c/128000M/2xv100",
    ]


def test_job_for_the_cpu_gets_a_core_a_rank_and_no_node_with_gpus_first() -> None:
    offered = ids(replace(job(), ranks=4))
    assert offered[0] == "cpu/122min/4c/16000M"
    assert {one.partition("/")[0] for one in offered[1:]} == {"gpu", "old"}


@pytest.mark.parametrize(("name", "kind"), [("A100 SXM4", "a100"), ("V100", "v100"), ("a100", "a100")])
def test_gpus_are_chosen_by_their_names(name: str, kind: str) -> None:
    shares = [NodeShare.of(one) for one in ids(job(1, gpu_names=(name,)))]
    # A site that names no kind may have it: the box looks for itself.
    assert {share.kind for share in shares if share} == {kind, "gpu"}


def test_a_price_is_for_gpus_and_for_nodes_of_the_partitions_in_the_settings() -> None:
    settings = SlurmSettings(partitions=("old",), usd_per_gpu_hour=2.0, usd_per_node_hour=0.5)
    offers, notes = partition_offers(job(1), PARTITIONS, settings, None, answers())
    assert [(offer.id, offer.usd_per_hour) for offer in offers] == [("old/122min/16c/1xgpu", 2.5)]
    assert notes == ["old: starts now"]


def test_the_time_limit_is_the_lease_s_and_the_partition_s() -> None:
    for hours, minutes in ((1.0, 62), (23.99, 1440), (24.0, 1440)):
        assert ids(job(hours=hours))[0] == f"cpu/{minutes}min/1c/4000M"


def test_nodes_of_any_state_are_one_partition_and_slurm_says_when_it_has_them() -> None:
    test, settings = answers(cpu=StartEstimate(wait_s=600.0)), SlurmSettings(partitions=("cpu",))
    (offer,), _ = partition_offers(replace(job(), nodes=8), PARTITIONS, settings, 100.0, test)
    assert offer.description == "Slurm, cpu: 1 cores, 4 GB memory; starts in 10 min"


def test_the_order_is_that_of_the_expected_starts_and_jobs_of_others_are_spared() -> None:
    late, rude = StartEstimate(wait_s=90.0), StartEstimate(wait_s=0.0, preempts=True)
    for by_partition, first in (({"old": late}, "gpu"), ({"gpu": late}, "old"), ({"old": rude}, "gpu")):
        assert ids(job(2), **by_partition)[0].startswith(first)


@pytest.mark.parametrize(
    ("spec", "partition", "answer", "said"),
    [
        (job(16), "gpu", None, "16 GPUs needed, 8 x a100 on a node"),
        (job(1, gpu_names=("K80",)), "gpu", None, "1 GPU of K80 needed, 8 x a100 on a node"),
        (job(hours=30.0), "cpu", None, "30 h needed, 24 h allowed"),
        (job(2, memory_gb=1000.0), "gpu", NONE, "available (1000 GB of memory needed, 512 on a node)"),
        (job(2, cpu_cores=999), "gpu", NONE, "available (999 CPU cores needed, 64 on a node)"),
        (replace(job(), nodes=9), "cpu", NONE, "available (9 nodes needed, 8 in the partition)"),
        (job(2), "old", NO, "Invalid account"),
    ],
)
def test_what_each_partition_lacks_is_said_in_slurm_s_words_and_in_ours(
    spec: JobSpec, partition: str, answer: StartEstimate | None, said: str
) -> None:
    test, settings = answers(**{partition: answer} if answer else {}), SlurmSettings(partitions=(partition,))
    _, (note,) = partition_offers(spec, PARTITIONS, settings, 100.0, test)
    assert note.startswith(f"{partition}: ")
    assert note.endswith(said)


def test_a_job_waits_for_nodes_that_are_drained_but_not_for_those_that_do_not_fit() -> None:
    settings, none = SlurmSettings(partitions=("broken", "closed")), answers(broken=NONE, closed=AT_ONCE)
    _, notes = partition_offers(job(1), PARTITIONS, settings, 100.0, none)
    waits = "waits: nodes are down or drained"
    assert notes == [f"broken: {waits}", f"closed: {waits}"]
    (offer,), _ = partition_offers(job(1, cpu_cores=999), PARTITIONS, settings, 100.0, none)
    assert offer.host == "partition closed"


def test_the_id_of_an_offer_holds_what_the_job_asks_for() -> None:
    share = NodeShare(partition="gpu", minutes=60, cores=16, memory_mb=64000, gpus=2, kind="a100")
    assert NodeShare.of(str(share)) == share
    assert "--gres=gpu:a100:2" in share.options(nodes=1)
    assert NodeShare.of("gpu/60min/16c; reboot") is None
