"""`python -m benchmarks [NAME ...]`: all of them, or those named."""

from __future__ import annotations

import sys

from benchmarks import overhead, startup, throughput

ALL = {"startup": startup.run, "throughput": throughput.run, "overhead": overhead.run}


def main() -> None:
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"error: no benchmark is called {', '.join(unknown)}\ntry: one of {', '.join(ALL)}")
    for name in names:
        ALL[name]()


if __name__ == "__main__":
    main()
