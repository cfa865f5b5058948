"""A launcher that prints all the time, for `test_question.py`.

Arguments: `drives`, `views`, `stops` (prints on until it is to destroy) or `background`; how long a
question waits. SIGUSR1 ends its run.
"""

import os
import signal
import sys
import threading

from vastrun.launcher.core import UserRequest
from vastrun.launcher.ui.interrupts import Interrupts, say_on
from vastrun.launcher.ui.question import HeldStream, ask_at


def main(who: str, answer_s: float) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: ended.set())
    say, output = say_on(2), HeldStream(lambda: sys.stdout)
    live = os.environ["TERM"] != "dumb"
    ask = ask_at(0, say, output, live=live, answer_s=answer_s)
    interrupts = Interrupts(say=say, ask=ask, views=who == "views")
    until = UserRequest.DESTROY if who == "stops" else UserRequest.DETACH
    number = 0
    with interrupts.listening():
        while not ended.is_set() and interrupts.current().strength < until.strength:
            number += 1
            output.write(f"line {number} {'.' * 30}\n")
            output.flush()
            interrupts.sleep(0.05)
    print(f"the request is {interrupts.current().value}, interrupted: {interrupts.interrupted}")


def in_background(answer_s: float) -> None:
    """In a group of processes of its own, as after `&`."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        main("drives", answer_s)
        return
    print(f"process {child}", flush=True)
    os.waitpid(child, 0)


if __name__ == "__main__":
    who, answer_s = sys.argv[1], float(sys.argv[2])
    if who == "background":
        in_background(answer_s)
    else:
        main(who, answer_s)
