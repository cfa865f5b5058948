"""What this computer has, and what it lacks for a job."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.markets import local
from tests.waiting import LONGEST_S
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import Resources
from vastrun.launcher.providers.hardware import Hardware, LocalGpu, node_offers, read_hardware
from vastrun.launcher.providers.local import LocalProvider
from vastrun.testing.setup import RealClock, small_job

STATION = Hardware(
    cores=16,
    memory_gb=64.0,
    disk_gb=500.0,
    gpus=(
        LocalGpu(uuid="GPU-1", name="NVIDIA GeForce RTX 4090", memory_gb=24.0),
        LocalGpu(uuid="GPU-2", name="NVIDIA A100-SXM4-80GB", memory_gb=80.0),
    ),
    cuda=12.4,
)


def unmet(hardware: Hardware, wanted: Resources) -> tuple[str, str]:
    """What the computer lacks for a job with these resources, and the hint; both empty: nothing."""
    try:
        offers = node_offers(
            replace(small_job(), resources=wanted), hardware, name="it", host="h", where="here"
        )
    except NoOfferError as error:
        return str(error).removeprefix("it does not meet the job's requirements: "), error.hint
    assert [offer.gpus for offer in offers] == [wanted.gpus]
    return "", ""


@pytest.mark.parametrize(
    "wanted",
    [
        Resources(gpus=2),
        Resources(gpus=1, gpu_names=("RTX 4090",)),
        Resources(gpus=1, gpu_names=("A100 SXM4",), gpu_memory_gb=80),
        Resources(gpus=2, gpu_names=("RTX 4090", "A100 SXM4")),
        Resources(gpus=0, memory_gb=64, disk_gb=500, cuda=13.0),
        Resources(gpus=1, cuda=12.4, regions=("DE",), reliability=1.0),
        Resources(gpus=0, cpu_cores=16),
        Resources(gpus=2, nvlink=True, datacenter=True, static_ip=True, disk_mbps=9e9, up_mbps=9e9),
    ],
)
def test_a_computer_that_has_all_lacks_nothing(wanted: Resources) -> None:
    assert unmet(STATION, wanted) == ("", "")


@pytest.mark.parametrize(
    ("wanted", "words", "fix"),
    [
        (Resources(gpus=3), "3 GPUs needed, 2 here", "resources.gpus=2"),
        (Resources(gpus=2, gpu_names=("RTX 4090",)), "2 GPUs of RTX 4090 needed, 1 here", "resources.gpus=1"),
        (Resources(gpus=2, gpu_memory_gb=40), "2 GPUs with 40 GB needed, 1 here", "resources.gpus=1"),
        (Resources(gpus=1, gpu_names=("H100",)), "1 GPU of H100 needed, none here", "resources.gpus=0"),
        (
            Resources(gpus=1, gpu_names=("H100", "A10O")),
            "1 GPU of H100 or A10O needed, none here; did you mean A10 or A100?",
            "resources.gpus=0",
        ),
        (Resources(gpus=0, cpu_cores=17), "17 CPU cores needed, 16 here", "resources.cpu_cores=16"),
        (Resources(gpus=0, memory_gb=65), "65 GB of memory needed, 64 here", "resources.memory_gb=64"),
        (Resources(gpus=0, disk_gb=501), "501 GB of disk needed, 500 free here", "resources.disk_gb=500"),
        (
            Resources(gpus=1, cuda=12.8),
            "CUDA 12.8 needed, the driver here supports 12.4",
            "resources.cuda=12.4",
        ),
    ],
)
def test_each_missed_limit_is_reported_with_what_to_type(wanted: Resources, words: str, fix: str) -> None:
    text, hint = unmet(STATION, wanted)
    assert (text, f"--set {fix}" in hint) == (words, True)
    key, value = fix.removeprefix("resources.").split("=")
    assert unmet(STATION, replace(wanted, **{key: type(getattr(wanted, key))(value)})) == ("", "")


@pytest.mark.parametrize("page", ["job-file.md", "own-script.md"])
def test_the_first_job_of_a_page_runs_on_a_laptop_as_page_or_error_says(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    job = re.findall(r"```yaml\n(.+?)```", text, re.DOTALL)[0]
    laptop = LocalProvider(tmp_path, sys.executable, clock=RealClock(), environ={"CUDA_VISIBLE_DEVICES": ""})
    small = ["resources.disk_gb=8"]
    try:
        laptop.search(load_job(job, page, small))
    except NoOfferError as error:
        assert "1 GPU needed, none here" in str(error)
        (fix,) = re.findall(r"--set (\S+)", error.hint)
        laptop.search(load_job(job, page, [*small, fix]))
        assert f"--set {fix}" in text


def test_an_unknown_cuda_version_is_not_held_against_the_computer() -> None:
    assert unmet(replace(STATION, cuda=0.0), Resources(gpus=1, cuda=12.8)) == ("", "")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A program of that name, first on PATH, with the body given."""

    def install(body: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + body)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


TWO_GPUS = """case "$1" in
--query*)
  echo "0, GPU-aaaa, 2048, NVIDIA GeForce GT 710"
  echo "1, GPU-bbbb, 24564, NVIDIA GeForce RTX 4090" ;;
*) echo "| Driver Version: 550.54   CUDA Version: 12.4  |" ;;
esac
"""


def test_gpus_are_those_that_nvidia_smi_lists(nvidia_smi: Callable[[str], None], tmp_path: Path) -> None:
    nvidia_smi(TWO_GPUS)
    found = read_hardware(tmp_path)
    assert found.gpus[1] == LocalGpu(uuid="GPU-bbbb", name="NVIDIA GeForce RTX 4090", memory_gb=24)
    assert found.cuda == 12.4


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb"]),
        ("0,1", ["GPU-aaaa", "GPU-bbbb"]),
        ("1", ["GPU-bbbb"]),
        ("GPU-aa", ["GPU-aaaa"]),
        ("", []),
    ],
)
def test_only_visible_gpus_count(
    nvidia_smi: Callable[[str], None], tmp_path: Path, visible: str | None, uuids: list[str]
) -> None:
    nvidia_smi(TWO_GPUS)
    assert [gpu.uuid for gpu in read_hardware(tmp_path, visible=visible).gpus] == uuids


def test_a_job_sees_only_the_gpus_it_asked_for(nvidia_smi: Callable[[str], None], tmp_path: Path) -> None:
    nvidia_smi(TWO_GPUS)
    market = local(tmp_path)
    job = replace(small_job(), resources=Resources(gpus=1, gpu_names=("RTX 4090",), disk_gb=8.0))
    order = replace(market.order("vastrun-calm-heron-3f1a"), offer=market.provider.search(job)[0])
    instance = market.provider.rent(order)
    done = market.provider.connect(instance).run("echo $CUDA_VISIBLE_DEVICES", timeout_s=LONGEST_S)
    market.provider.destroy(instance.id)
    assert done.stdout == "GPU-bbbb\n"


def test_a_job_for_the_cpu_sees_no_gpu(nvidia_smi: Callable[[str], None], tmp_path: Path) -> None:
    nvidia_smi(TWO_GPUS)
    market = local(tmp_path)
    instance = market.provider.rent(market.order("vastrun-calm-heron-3f1a"))
    done = market.provider.connect(instance).run('echo "${CUDA_VISIBLE_DEVICES-all}"', timeout_s=LONGEST_S)
    market.provider.destroy(instance.id)
    assert done.stdout == "\n"


def test_an_nvidia_smi_that_fails_means_no_gpu(nvidia_smi: Callable[[str], None], tmp_path: Path) -> None:
    nvidia_smi("echo 'NVIDIA-SMI has failed'; exit 9\n")
    assert read_hardware(tmp_path).gpus == ()


def test_a_gpu_that_shares_the_computer_s_memory_is_a_gpu_of_unknown_memory(
    nvidia_smi: Callable[[str], None], tmp_path: Path
) -> None:
    nvidia_smi("""case "$1" in --query*) echo "0, GPU-cccc, [N/A], NVIDIA GB10" ;; esac\n""")
    found = read_hardware(tmp_path)
    assert found.gpus == (LocalGpu(uuid="GPU-cccc", name="NVIDIA GB10", memory_gb=0),)
    assert unmet(found, Resources(gpus=1, disk_gb=1)) == ("", "")
    text, _ = unmet(found, Resources(gpus=1, gpu_memory_gb=24, disk_gb=1))
    assert text == "1 GPU with 24 GB needed, none here"


def test_the_free_disk_is_known_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert read_hardware(tmp_path / "not" / "yet").disk_gb > 0
