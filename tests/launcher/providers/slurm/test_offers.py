"""Partitions as offers: GPUs by GRES, prices by the settings, and what a partition lacks."""

from dataclasses import replace
from typing import Any

import pytest

from tests.jobs import train_job
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import END, Partition, parse_partitions
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


@pytest.fixture
def partitions() -> list[Partition]:
    return parse_partitions(f"{SINFO}{END}\n")


def job(gpus: int = 0, hours: float = 2.0, **resources: Any) -> JobSpec:
    return train_job(resources=Resources(gpus=gpus, disk_gb=8.0, **resources), limits=Limits(hours=hours))


def ids(spec: JobSpec, partitions: list[Partition]) -> list[str]:
    return [offer.id for offer in partition_offers(spec, partitions, SlurmSettings(), 100.0)]


def test_a_job_with_gpus_gets_its_part_of_a_node_s_cores_and_memory(partitions: list[Partition]) -> None:
    assert ids(job(2), partitions) == ["old/32c/2xgpu", "gpu/24c/128000M/2xv100", "gpu/16c/128000M/2xa100"]


def test_job_for_the_cpu_gets_a_core_a_rank_and_no_node_with_gpus_first(partitions: list[Partition]) -> None:
    found = ids(replace(job(), ranks=4), partitions)
    assert found[0] == "cpu/4c/16000M"
    assert {one.partition("/")[0] for one in found[1:]} == {"gpu", "old"}


@pytest.mark.parametrize(("name", "kind"), [("A100 SXM4", "a100"), ("V100", "v100"), ("a100", "a100")])
def test_gpus_are_chosen_by_their_names(name: str, kind: str, partitions: list[Partition]) -> None:
    found = [NodeShare.of(one) for one in ids(job(1, gpu_names=(name,)), partitions)]
    # A site that names no kind may have it: the box looks for itself.
    assert {share.kind for share in found if share} == {kind, "gpu"}


def test_a_price_is_for_gpus_and_for_nodes(partitions: list[Partition]) -> None:
    offers = partition_offers(
        job(4), partitions, SlurmSettings(usd_per_gpu_hour=2.0, usd_per_node_hour=0.5), None
    )
    assert {offer.usd_per_hour for offer in offers} == {8.5}


def test_only_the_partitions_of_the_settings_are_offered(partitions: list[Partition]) -> None:
    found = partition_offers(job(1), partitions, SlurmSettings(partitions=("old",)), 100.0)
    assert [offer.id for offer in found] == ["old/16c/1xgpu"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (job(16), "16 GPUs needed, 8 x a100 on a node"),
        (job(1, hours=100.0, gpu_names=("K80",)), "1 GPU of K80 needed"),
        (job(2, hours=100.0, memory_gb=1000.0), "1000 GB of memory needed, 512 on a node"),
        (job(2, hours=100.0, cpu_cores=999), "999 CPU cores needed, 64 on a node"),
        (job(hours=30.0), "30 h needed, 24 h allowed"),
        (job(1), "its nodes are down or drained"),
        (job(1), "8 GB of disk needed, 1 free on the shared disk"),
    ],
)
def test_what_each_partition_lacks_is_said(spec: JobSpec, said: str, partitions: list[Partition]) -> None:
    names = ("cpu", "gpu") if "down" not in said else ("broken", "closed")
    with pytest.raises(NoOfferError, match="no partition fits the job") as caught:
        partition_offers(spec, partitions, SlurmSettings(partitions=names), 1.0)
    assert said in str(caught.value)


def test_the_id_of_an_offer_holds_what_the_job_asks_for() -> None:
    share = NodeShare(partition="gpu", cores=16, memory_mb=64000, gpus=2, kind="a100")
    assert NodeShare.of(str(share)) == share
    assert share.gres == "gpu:a100:2"
    assert NodeShare.of("gpu/16c; reboot") is None
