"""Checks: the one list of them, in the order in which they are done."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tests.gpu.check import Check
from tests.gpu.checks import curves, figures, machine, memory, running, saved

_COMPILER = ("g++|clang++", "gcc|cc|clang")

CHECKS: Mapping[str, Check] = {
    "preflight": Check(
        text="nvidia-smi, NVML and torch name the same GPUs, and the preflight accepts them",
        run=machine.check_preflight,
        needs=("pynvml",),
    ),
    "communication": Check(
        text="all GPUs talk in the first way that works", run=machine.check_communication, seconds=120
    ),
    "fp32": Check(
        text="losses in fp32: single, ddp and fsdp2, beside the CPU's",
        run=partial(curves.check_strategies, "fp32"),
    ),
    "bf16": Check(
        text="the same in bf16, beside the CPU's in bf16", run=partial(curves.check_strategies, "bf16")
    ),
    "models": Check(text="losses of an FNO, and with TF32, beside the CPU's", run=curves.check_models),
    "muon": Check(text="losses with Muon, whole and sharded, beside the CPU's", run=curves.check_muon),
    "no-sync": Check(
        text="20 steps in which the host never waits for the GPU, of each kind", run=running.check_no_sync
    ),
    "bitwise": Check(
        text="saved and resumed: the losses of a training that was not interrupted",
        run=saved.check_bitwise,
        seconds=90,
    ),
    "other-device": Check(
        text="a checkpoint of the CPU goes on on a GPU, and the other way round", run=saved.check_other_device
    ),
    "loader": Check(text="batches read ahead from pinned memory arrive whole", run=running.check_loader),
    "offload": Check(
        text="losses with weights kept in main memory: AdamW, Muon, bf16", run=curves.check_offload
    ),
    "probe": Check(text="the memory probe finds what fits", run=memory.check_probe),
    "retry": Check(
        text="CUDA out of memory in a forward and a backward pass: the step is done again",
        run=memory.check_retry,
    ),
    "restarts": Check(
        text="CUDA out of memory in each place: the ranks start again with half",
        run=memory.check_restarts,
        seconds=150,
    ),
    "blocks": Check(
        text="losses of a model compiled block by block",
        run=partial(curves.check_compiled, "blocks"),
        seconds=180,
        needs=_COMPILER,
    ),
    "whole": Check(
        text="losses of a model compiled whole",
        run=partial(curves.check_compiled, "whole"),
        seconds=180,
        needs=_COMPILER,
    ),
    "graphs": Check(text="losses with CUDA graphs", run=curves.check_graphs, seconds=180, needs=_COMPILER),
    "stop": Check(text="a stop while the model compiles", run=saved.check_stop, seconds=120, needs=_COMPILER),
    "fall-back": Check(
        text="two GPUs talk in each way: peer to peer, shared memory, sockets; one that hangs is given up",
        run=machine.check_fall_back,
        gpus=2,
        seconds=150,
    ),
    "one-gpu-each": Check(
        text="every rank has opened its own GPU, and no other", run=machine.check_one_gpu_each, gpus=2
    ),
    "hang": Check(
        text="a hang in NCCL: the rank, the stacks and the flight recorders of all",
        run=running.check_hang,
        gpus=2,
        seconds=120,
    ),
    "other-ranks": Check(
        text="a training goes on on twice as many ranks, and back", run=saved.check_other_ranks, gpus=2
    ),
    "lightning": Check(
        text="the example for Lightning", run=running.check_lightning, seconds=90, needs=("lightning",)
    ),
    "foretold": Check(
        text="memory that `vastrun plan` foretells, beside the allocator's peak",
        run=memory.check_foretold,
        seconds=90,
    ),
    "mfu": Check(text="reference models: how much of the GPU they use", run=figures.measure_mfu, seconds=120),
    "loop": Check(
        text="training with every safeguard, beside a bare loop",
        run=partial(figures.measure_loop, "single"),
        seconds=200,
    ),
    "sharded-loop": Check(
        text="the same with fsdp2, beside bare `fully_shard`",
        run=partial(figures.measure_loop, "fsdp2"),
        seconds=200,
    ),
    "delivery": Check(text="the loader beside a copy", run=figures.measure_loader),
    "stall": Check(text="how long a checkpoint stops the training", run=figures.measure_stall, seconds=120),
}
