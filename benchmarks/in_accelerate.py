"""The same course in accelerate."""

from __future__ import annotations

from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from benchmarks.course import Course
from trainer.optim import set_learning_rate


def main() -> None:
    course = Course.of_environment()
    config = course.config
    usual = DistributedDataParallelKwargs(gradient_as_bucket_view=True, broadcast_buffers=False)
    accelerator = Accelerator(cpu=course.device.type == "cpu", kwargs_handlers=[usual])
    model, optimizer = accelerator.prepare(course.objective, course.optimizer(course.objective))
    for step, windows in enumerate(course.batches()):
        loss = model(windows)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), config.optim.clip)
        set_learning_rate(optimizer, course.schedule.rate(step))
        optimizer.step()
        course.tell(step + 1, loss)
    accelerator.wait_for_everyone()
    course.end()


if __name__ == "__main__":
    main()
