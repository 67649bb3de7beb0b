"""Runs an example as it stands, and kills its process right after it has printed a certain line.

`python -m tests.examples.kill_after_line "searching for tides" examples/research.py`
"""

from __future__ import annotations

import builtins
import os
import runpy
import signal
import sys
from typing import Any

_print = builtins.print


def print_and_die(last: str) -> Any:
    def print_or_die(*values: object, **options: Any) -> None:
        _print(*values, **options)
        if values == (last,):
            os.kill(os.getpid(), signal.SIGKILL)

    return print_or_die


if __name__ == "__main__":
    last, program, *arguments = sys.argv[1:]
    builtins.print = print_and_die(last)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
