"""Train this rank: `python -u -m vastrun.trainer.train`, started with torchrun's variables and VASTRUN_BOX.

Everything that must happen before torch is imported is here; set-up and loop are in `trainer/loop.py`.
"""

import faulthandler
import gc
import signal

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.program import finished_steps
from vastrun.trainer.distributed.exit import RankExit
from vastrun.trainer.distributed.rank import Heartbeat, Rank
from vastrun.trainer.distributed.signals import StopSignal
from vastrun.trainer.job.config import config_of


def main() -> None:
    """Run a rank. Never returns: RankExit ends the process."""
    rank = Rank.of_environment()
    heart = Heartbeat.of_this_rank()
    heart.first_step = finished_steps(rank.box)
    heart.beat(0, "start")
    with RankExit(rank.box, rank.rank, heart) as rank_exit:
        # SIGUSR1 writes the stacks of all threads, even while the main thread waits in C++.
        path = rank.box / layout.STACKS / f"rank-{rank.rank}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, file=path.open("w"), all_threads=True)
        # Torch and numpy start threads when they are imported; these must find SIGTERM blocked.
        stop = StopSignal.watch(rank_exit.abort)
        rank_exit.asked = lambda: stop.asked
        job = Job.read(rank.box)

        # Imported modules stay alive: scanning them for garbage takes half a second each time.
        gc.disable()
        from vastrun.trainer.loop import train

        gc.freeze()
        rank_exit.reason = train(rank, job, config_of(job), heart, stop)


if __name__ == "__main__":
    main()
