"""What Slurm's commands print: jobs, partitions, boxes, the cluster."""

import pytest

from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.gate import slurm

RUNNING = "7|RUNNING|1-02:03:04|1800000000|gpu:a100:4|2|n[1-2]|None|vastrun-a.1|vastrun-calm-heron-3f1a"


def jobs(*rows: str) -> list[slurm.SlurmJob]:
    """The jobs of these rows, in a listing that is whole."""
    return slurm.parse_jobs("\n".join([*rows, slurm.END, ""]), "vastrun-")


def test_a_job_that_waits_has_not_run() -> None:
    row = "7|PENDING|{}|1800000000|gpu:a100:4|2||Priority|vastrun-a.1|vastrun-calm-heron-3f1a"
    for job in jobs(*(row.format(ran) for ran in ("", "INVALID", "N/A"))):
        assert (job.ran_s, job.reason, job.nodes) == (0.0, "Priority", "")


def test_a_job_that_runs_says_for_how_long_and_on_what() -> None:
    (job,) = jobs(RUNNING)
    assert (job.id, job.ran_s, job.submitted_at) == (7, 93_784.0, 1_800_000_000.0)
    assert (job.gpus, job.size, job.nodes, job.reason) == (4, 2, "n[1-2]", "")


def test_jobs_of_others_are_skipped_whatever_they_contain() -> None:
    assert [job.id for job in jobs("x|y", "8|?|?|?|?|?|?|?|other|", RUNNING)] == [7]


def test_a_duration_has_days_hours_minutes_and_seconds() -> None:
    for ran, seconds in {"00:01": 1, "02:03": 123, "01:02:03": 3723, "2-00:00:00": 172_800}.items():
        (job,) = jobs(RUNNING.replace("1-02:03:04", ran))
        assert job.ran_s == seconds


@pytest.mark.parametrize(
    ("state", "is_pending", "is_over", "is_ending"),
    [
        ("PENDING", True, False, False),
        ("CONFIGURING", True, False, False),
        ("RUNNING", False, False, False),
        ("SUSPENDED", False, False, False),
        ("COMPLETING", False, True, True),
        ("COMPLETED", False, True, False),
        ("PREEMPTED", False, True, False),
    ],
)
def test_a_job_has_its_nodes_unless_its_state_says_otherwise(
    state: str, is_pending: bool, is_over: bool, is_ending: bool
) -> None:
    (job,) = jobs(RUNNING.replace("RUNNING", state))
    assert (job.is_pending, job.is_over, job.is_ending) == (is_pending, is_over, is_ending)


def test_a_job_has_one_node_to_64() -> None:
    sizes = [jobs(RUNNING.replace("|2|n", f"|{size}|n"))[0].size for size in (0, 1, 64, 65)]
    assert sizes == [1, 1, 64, 64]


def test_gpus_of_all_kinds_are_counted() -> None:
    (job,) = jobs(RUNNING.replace("gpu:a100:4", "gres/gpu:a100:4(S:0-1),gpu:2,nvme:1"))
    assert job.gpus == 6


def partition(**changes: str) -> slurm.Partition:
    """A row of `sinfo` with other fields."""
    fields = {
        "name": "gpu",
        "avail": "up",
        "limit": "1-00:00:00",
        "nodes": "4",
        "cores": "64",
        "memory": "512000",
        "state": "idle",
        "gres": "gpu:a100:8(S:0-1)",
    }
    (parsed,) = slurm.parse_partitions(f"{'|'.join((fields | changes).values())}\n{slurm.END}\n")
    return parsed


def test_a_partition_has_the_hardware_of_its_nodes() -> None:
    assert partition() == slurm.Partition(
        name="gpu",
        is_default=False,
        is_usable=True,
        max_s=86_400.0,
        nodes=4,
        cores=64,
        memory_mb=512_000,
        gpus=(slurm.Gpus(kind="a100", count=8),),
    )
    assert partition(name="gpu*").name == "gpu"
    assert partition(name="gpu*").is_default
    assert partition(limit="infinite").max_s is None
    assert partition(cores="64+").cores == 64
    assert [partition(memory=memory).memory_mb for memory in ("0", "1", "2", "3+")] == [0, 0, 2, 3]
    assert partition(gres="gpu:0,gpu:t4:1").gpus == (slurm.Gpus(kind="t4", count=1),)
    assert partition(gres="(null)").gpus == ()


@pytest.mark.parametrize(
    ("changes", "is_usable"),
    [
        ({"state": "mixed"}, True),
        ({"state": "IDLE~"}, True),
        ({"state": "idle*"}, False),
        ({"state": "down"}, False),
        ({"state": "drained"}, False),
        ({"state": "maint"}, False),
        ({"avail": "down"}, False),
    ],
)
def test_a_partition_is_usable_where_it_is_up_and_its_nodes_respond(
    changes: dict[str, str], is_usable: bool
) -> None:
    assert partition(**changes).is_usable == is_usable


def test_the_scheduler_says_when_a_job_would_start_and_whose_jobs_it_ends_for_it() -> None:
    text = "sbatch: Job 7 to start at 1795523661 using 1 processors on nodes n1 in partition debug"
    rows = (
        f"0 1795523601 {text}",
        f"0 1795523662 {text}\fsbatch:   Preempts: 6",
        "1 5 sbatch: error: No",
        "0 5 ",
    )
    assert slurm.parse_starts("\n".join([*rows, slurm.END, ""]), 4) == [
        slurm.StartEstimate(wait_s=60.0),
        slurm.StartEstimate(wait_s=0.0, preempts=True),
        slurm.StartEstimate(refusal="No"),
        slurm.StartEstimate(),
    ]


def boxes(*rows: str) -> list[slurm.Box]:
    """The boxes of these rows, in a listing that is whole."""
    return slurm.parse_boxes("\n".join([*rows, slurm.END, ""]))


def test_a_box_has_its_age_and_the_place_where_others_reach_it() -> None:
    assert boxes(
        "1795523601.5 calm-heron.0a0b",
        "1795523602 wise-otter.0a0b n1.lab:29400",
        "1795523603 bold-finch.0a0b $(reboot)",
        "1795523604 lost+found/..",
    ) == [
        slurm.Box(name="calm-heron.0a0b", changed_at=1_795_523_601),
        slurm.Box(name="wise-otter.0a0b", changed_at=1_795_523_602, rendezvous="n1.lab:29400"),
        slurm.Box(name="bold-finch.0a0b", changed_at=1_795_523_603),
    ]
    assert boxes() == []
    with pytest.raises(UnreachableError, match="duplicate folder"):
        boxes("1 calm-heron.0a0b", "2 wise-otter.0a0b", "3 calm-heron.0a0b")


def test_of_several_nodes_exactly_one_that_is_missing_is_named() -> None:
    def missing(names: str, left: str) -> tuple[str, int] | None:
        return slurm.find_missing_node("\n".join([*names.split(), "-", *left.split(), slurm.END, ""]))

    assert missing("n1 n2 n3", "n1 n3") == ("n2", 1)
    assert missing("n1 n2 n3", "n3 n1 n2") is None
    assert missing("n1 n2 n3", "n1") is None


def test_single_values_are_read_and_whatever_else_is_printed_is_unknown() -> None:
    assert slurm.parse_cluster(f"lab\n23.11.4\nalice\n{slurm.END}\n") == slurm.Cluster(
        name="lab", version="23.11.4", user="alice"
    )
    assert [slurm.parse_job_id(text) for text in ("7\n", "7;lab", "seven", "")] == [7, 7, None, None]
    assert [
        slurm.parse_free_gb(text)
        for text in (f"1000000\n{slurm.END}\n", f"0\n{slurm.END}\n", f"?\n{slurm.END}\n", "")
    ] == [1.024, 0.0, None, None]


def test_errors_are_one_line_without_the_name_of_the_command() -> None:
    assert slurm.summarize_errors("sbatch: error: invalid partition\n\nsbatch: error: try again\nbye\n") == (
        "invalid partition; try again; bye"
    )
    assert len(slurm.summarize_errors("x" * 301)) == 300
    assert len(slurm.summarize_errors(("x" * 200 + "\n") * 9)) == 300


def test_the_first_five_names_are_listed_and_the_others_counted() -> None:
    texts = {"": "", "abcde": "a, b, c, d, e", "abcdef": "a, b, c, d, e and 1 more", "aab": "a, b"}
    assert {names: slurm.join_names(names) for names in texts} == texts
