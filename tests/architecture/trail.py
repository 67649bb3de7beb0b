"""The files that a piece of work goes through: every module whose functions are called, and every query."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType

from tests.architecture.source import PACKAGE

_ROOT = f"{PACKAGE}/"
# The store runs a query by its name, or a write that is one statement and has its name.
_STORE = "store/sqlite"


class Trail:
    """What was called while it was recorded: the files in order, and the names of the queries."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.queries: set[str] = set()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Also in threads that begin inside: open the store here."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        threading.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def goes_through(self, stops: list[str]) -> str | None:
        """The first of these files that was not reached after the one before it; None if all were."""
        rest = iter(self.files)
        return next((stop for stop in stops if stop not in rest), None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_ROOT):
            return
        path = PurePath(frame.f_code.co_filename.removeprefix(_ROOT)).as_posix()
        if not self.files or self.files[-1] != path:
            self.files.append(path)
        if path.startswith(_STORE):
            given = frame.f_locals
            self.queries.add(str(given.get("query")))
            self.queries.add(str(getattr(given.get("write"), "statement", None)))


def main(arguments: list[str]) -> None:
    """Runs the program, and prints the files that it went through."""
    from holdfast.cli.main import main as program
    from holdfast.gateway import serving

    trail = Trail()
    # The gateway's process ends itself soon after it has stopped; it must print first.
    serving.end_soon = lambda status: None  # noqa: ARG005 - as the real one
    with trail.recorded():
        program(arguments)
    print("\n".join(trail.files))


if __name__ == "__main__":
    main(sys.argv[1:])
