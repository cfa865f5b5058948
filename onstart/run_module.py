"""Run a module on a machine: `python run_module.py MODULE ARGUMENT...`, like `python -P -m MODULE`.

The working folder is not searched, so that no file in it hides a module: `-P` needs Python 3.11. Pythons
older than the trainer supports must be able to parse this file, to report that to their users. Modules also
import others by it, without garbage collection.
"""

import gc
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def module_command(module: str, *options: str) -> tuple[str, ...]:
    """Return the command line that runs a module with this interpreter and these interpreter options."""
    return (sys.executable, *options, __file__, module)


def main() -> None:
    """Run the module that the first argument names."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()


@contextmanager
def importing() -> "Iterator[None]":
    """Disable collection during imports, and exclude the imported objects later.

    A collection through torch's objects takes half a second, and would copy their pages in each fork of this
    process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
