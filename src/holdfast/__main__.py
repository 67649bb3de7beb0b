"""`python -m holdfast`."""

from __future__ import annotations

import os
import sys


def _leave_working_directory() -> None:
    """`python -m` puts the working directory before everything that is installed. The command `holdfast run`
    puts it there itself; no other command imports from it."""
    try:
        is_first = not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.path.realpath("")
    except OSError:  # it was removed
        return
    if is_first:
        del sys.path[0]


if __name__ == "__main__":
    _leave_working_directory()
    from holdfast.cli.entry import main

    sys.exit(main())
