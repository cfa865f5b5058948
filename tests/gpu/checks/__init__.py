"""Checks: the one list of them, in the order in which they are done: the most valuable first."""

from collections.abc import Mapping
from functools import partial

from tests.gpu.check import Check
from tests.gpu.checks import accuracy, curves, features, figures, machine, memory, running, saved

_COMPILER = ("g++|clang++", "gcc|cc|clang")

CHECKS: Mapping[str, Check] = {
    "preflight": Check(
        text="nvidia-smi, NVML and torch name the same GPUs, and the preflight accepts them",
        run=machine.check_preflight,
        expected_s=3,
        alone=True,
        needs=("pynvml",),
    ),
    "mfu": Check(
        text="a large model in bf16 (dim 1024, depth 12, 256 tokens, batch 256): how much of the GPU it uses",
        run=figures.measure_mfu,
        expected_s=35,
        limit_s=150,
        alone=True,
    ),
    "loop": Check(
        text="training with every safeguard, beside a bare loop",
        run=partial(figures.measure_loop, "single"),
        expected_s=85,
        limit_s=200,
        alone=True,
        needs=("psutil",),
    ),
    "speed": Check(
        text="the latent operator beside an FNO with as many parameters",
        run=figures.measure_models,
        expected_s=20,
        alone=True,
    ),
    "compiled": Check(
        text="the same latent operator, compiled block by block with CUDA graphs",
        run=partial(figures.measure_compiled, "latent"),
        expected_s=30,
        limit_s=120,
        alone=True,
        needs=_COMPILER,
    ),
    "compiled-fno": Check(
        text="the same FNO, compiled block by block with CUDA graphs",
        run=partial(figures.measure_compiled, "fno"),
        expected_s=20,
        limit_s=120,
        alone=True,
        on_cpu=False,  # torch 2.11 cannot compile its transforms for a CPU
        needs=_COMPILER,
    ),
    "stall": Check(
        text="how long a checkpoint stops the training", run=figures.measure_stall, expected_s=40, alone=True
    ),
    "estimated": Check(
        text="memory that `vastrun plan` estimates, beside the allocator's peak, jobs of 4 GiB and more",
        run=memory.check_estimated,
        expected_s=30,
        limit_s=150,
    ),
    "graphs": Check(
        text="CUDA graphs: losses beside the eager ones, and speed",
        run=curves.check_graphs,
        expected_s=75,
        limit_s=180,
        alone=True,
        needs=_COMPILER,
    ),
    "out-of-memory": Check(
        text="a step that needs several times the memory of the GPU",
        run=memory.check_out_of_memory,
        expected_s=50,
        limit_s=150,
        alone=True,
    ),
    "bitwise": Check(
        text="deterministic, 256 tokens, saved and resumed: the losses of a training without a break",
        run=saved.check_bitwise,
        expected_s=15,
    ),
    "delivery": Check(text="the loader beside a copy", run=figures.measure_loader, expected_s=5, alone=True),
    "equal-time": Check(
        text="accuracy after equal time on this GPU, the spectral operator beside a tuned FNO (Burgers)",
        run=accuracy.measure_equal_time,
        expected_s=165,
        limit_s=220,
        alone=True,
    ),
    "two-on-one": Check(
        text="DDP, two ranks on one GPU over gloo: losses beside the CPU's",
        run=curves.check_two_on_one,
        expected_s=5,
    ),
    "no-sync": Check(
        text="20 steps in which the host never waits for the GPU, of each kind",
        run=running.check_no_sync,
        expected_s=15,
    ),
    "fp32": Check(
        text="losses in fp32: single, ddp and fsdp2, beside the CPU's",
        run=partial(curves.check_strategies, "fp32"),
        expected_s=10,
    ),
    "bf16": Check(
        text="the same in bf16, beside the CPU's in bf16",
        run=partial(curves.check_strategies, "bf16"),
        expected_s=10,
    ),
    "models": Check(
        text="losses of an FNO, and with TF32, beside the CPU's", run=curves.check_models, expected_s=10
    ),
    "muon": Check(
        text="losses with Muon, whole and sharded, beside the CPU's", run=curves.check_muon, expected_s=10
    ),
    "features": Check(
        text="losses of other objectives, kinds of checkpointing and mixes of tasks, beside the CPU's",
        run=features.check_models,
        expected_s=20,
    ),
    "stages": Check(
        text="losses of refine, distill, steady, a frozen codec, beside the CPU's; none waits for the GPU",
        run=features.check_stages,
        expected_s=15,
    ),
    "evaluation": Check(
        text="evaluations during and after a training in bf16", run=features.check_evaluation, expected_s=20
    ),
    "profile": Check(
        text="a profile of three steps: a trace with kernels", run=running.check_profile, expected_s=15
    ),
    "restarts": Check(
        text="CUDA out of memory in each place: the ranks start again with half",
        run=memory.check_restarts,
        expected_s=25,
        limit_s=150,
    ),
    "blocks": Check(
        text="losses of a model compiled block by block",
        run=partial(curves.check_compiled, "blocks"),
        expected_s=30,
        limit_s=180,
        needs=_COMPILER,
    ),
    "whole": Check(
        text="losses of a model compiled whole",
        run=partial(curves.check_compiled, "whole"),
        expected_s=35,
        limit_s=180,
        needs=_COMPILER,
    ),
    "autotune": Check(
        text="losses of a model compiled with autotuning",
        run=partial(curves.check_compiled, "max-autotune"),
        expected_s=180,
        limit_s=300,
        needs=_COMPILER,
    ),
    "loader": Check(
        text="batches read ahead from pinned memory arrive whole", run=running.check_loader, expected_s=10
    ),
    "offload": Check(
        text="losses with weights kept in main memory: AdamW, Muon, bf16",
        run=curves.check_offload,
        expected_s=10,
    ),
    "other-device": Check(
        text="a checkpoint of the CPU goes on on a GPU, and the other way round",
        run=saved.check_other_device,
        expected_s=10,
    ),
    "stop": Check(
        text="a stop while the model compiles", run=saved.check_stop, expected_s=35, needs=_COMPILER
    ),
    "lightning": Check(
        text="the example for Lightning", run=running.check_lightning, expected_s=20, needs=("lightning",)
    ),
    "communication": Check(
        text="all GPUs talk in the first way that works", run=machine.check_communication, expected_s=5
    ),
    "sharded-loop": Check(
        text="training with every safeguard and fsdp2, beside bare `fully_shard`",
        run=partial(figures.measure_loop, "fsdp2"),
        expected_s=85,
        limit_s=200,
        alone=True,
        needs=("psutil",),
    ),
    "fall-back": Check(
        text="two GPUs talk in each way: peer to peer, shared memory, sockets; one that hangs is given up",
        run=machine.check_fall_back,
        gpus=2,
        expected_s=60,
        limit_s=150,
    ),
    "one-gpu-each": Check(
        text="every rank has opened its own GPU, and no other",
        run=machine.check_one_gpu_each,
        gpus=2,
        expected_s=15,
        alone=True,
    ),
    "hang": Check(
        text="a hang in NCCL: the rank, the stacks and the flight recorders of all",
        run=running.check_hang,
        gpus=2,
        expected_s=40,
    ),
    "other-ranks": Check(
        text="a training goes on on twice as many ranks, and back",
        run=saved.check_other_ranks,
        gpus=2,
        expected_s=30,
    ),
}
