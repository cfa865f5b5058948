"""The same course in accelerate, with its own checkpoints."""

from __future__ import annotations

from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from benchmarks.course import Course


def main() -> None:
    course = Course.of_environment()
    usual = DistributedDataParallelKwargs(gradient_as_bucket_view=True, broadcast_buffers=False)
    accelerator = Accelerator(cpu=course.device.type == "cpu", kwargs_handlers=[usual])
    optimizer = course.optimizer(course.objective)
    # The schedule is not handed over: accelerate would take a step of it for each rank.
    schedule = course.schedule(optimizer)
    model, optimizer = accelerator.prepare(course.objective, optimizer)
    for done, windows in enumerate(course.batches(), start=1):
        loss = model(windows)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), course.config.optim.clip)
        optimizer.step()
        schedule.step()
        course.tell(done, loss)
        if folder := course.saves_after(done):
            accelerator.save_state(str(folder))
    accelerator.wait_for_everyone()
    course.end()


if __name__ == "__main__":
    main()
