"""The same workload in accelerate, with its own checkpoints."""

from __future__ import annotations

from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from benchmarks.workload import Workload


def main() -> None:
    workload = Workload.of_environment()
    usual = DistributedDataParallelKwargs(gradient_as_bucket_view=True, broadcast_buffers=False)
    accelerator = Accelerator(cpu=workload.device.type == "cpu", kwargs_handlers=[usual])
    optimizer = workload.optimizer(workload.objective)
    # The schedule is not handed over: accelerate would take a step of it for each rank.
    schedule = workload.schedule(optimizer)
    model, optimizer = accelerator.prepare(workload.objective, optimizer)
    for done, windows in enumerate(workload.batches(), start=1):
        loss = model(windows)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), workload.config.optim.clip)
        optimizer.step()
        schedule.step()
        workload.report(done, loss)
        if folder := workload.saves_after(done):
            accelerator.save_state(str(folder))
    accelerator.wait_for_everyone()
    workload.end()


if __name__ == "__main__":
    main()
