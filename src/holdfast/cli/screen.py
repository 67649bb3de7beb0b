"""Shows a task to a person: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.cli.output import Output, counted, is_terminal, may_color
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

# How often progress is printed without a terminal.
TELL_EVERY_S = 5.0
SHOW_CURSOR = "\x1b[?25h"


class ProgressSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a task at one moment."""

    status: str
    done: int = 0
    total: int | None = None
    subtask: str | None = None
    turns: int = 0
    steps: int = 0
    last_step: str | None = None
    last_event: str = ""

    def words(self) -> str:
        parts = [self.status]
        if self.done or self.total is not None:
            parts.append(self.progress())
        if self.turns:
            parts.append(counted(self.turns, "turn"))
        if self.steps:
            parts.append(counted(self.steps, "step") + (f" ({self.last_step})" if self.last_step else ""))
        if self.last_event:
            parts.append(self.last_event)
        return " · ".join(parts)

    def progress(self) -> str:
        total = "" if self.total is None else f"/{self.total:,}"
        share = "" if not self.total else f" ({self.done / self.total:.0%})"
        return f"{self.done:,}{total}{share}" + (f" {self.subtask}" if self.subtask else "")


class Screen(Protocol):
    """Where a Follower prints."""

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def show(self, glance: ProgressSnapshot) -> None:
        """Show the current progress."""
        ...

    def ask(self, prompt: str) -> None:
        """Print a prompt and wait for typed input behind it."""
        ...

    def go_on(self) -> None:
        """The prompt is over: it was answered, or is no longer needed."""
        ...


class PlainLines:
    """For a pipe or a log: changes line by line, at a limited rate."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: ProgressSnapshot | None = None
        self._told_at = 0.0

    def say(self, text: str) -> None:
        self._output.say(text)

    def show(self, glance: ProgressSnapshot) -> None:
        told, now = self._told, time.monotonic()
        if told is None:
            self._told, self._told_at = glance, now
        elif now - self._told_at >= TELL_EVERY_S and self._has_moved(told, glance):
            self._told, self._told_at = glance, now
            self._output.say(glance.words())

    def _has_moved(self, before: ProgressSnapshot, glance: ProgressSnapshot) -> bool:
        return (before.done, before.turns, before.steps) != (glance.done, glance.turns, glance.steps)

    def ask(self, prompt: str) -> None:
        self._output.say(prompt)

    def go_on(self) -> None:
        pass


class LiveLine:
    """For a terminal: lines scroll, and the last one is redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._console = Console(stderr=True, no_color=not may_color(sys.stderr), highlight=False)
        self._spinner = Spinner("dots")
        self._glance: ProgressSnapshot | None = None
        self._began_at = time.monotonic()
        self._live = Live(
            console=self._console, get_renderable=self._drawn, refresh_per_second=8, transient=True
        )

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            self._live.stop()

    def say(self, text: str) -> None:
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):
            self._console.print(Text(one_line(text, 2000)), soft_wrap=True)

    def show(self, glance: ProgressSnapshot) -> None:
        self._glance = glance

    def ask(self, prompt: str) -> None:
        self.stop()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(prompt)
            sys.stderr.flush()

    def go_on(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._live.start()

    def _drawn(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis")
        seconds = int(time.monotonic() - self._began_at)
        words = "" if self._glance is None else f"{self._glance.words()} · "
        text = Text(f"{words}{seconds // 60}:{seconds % 60:02}", no_wrap=True, overflow="ellipsis")
        line.add_row(self._spinner, text)
        return line


@contextlib.contextmanager
def screen_for(output: Output) -> Iterator[Screen]:
    """The screen that fits stderr: a terminal or not."""
    if not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield PlainLines(output)
        return
    line = LiveLine()
    line.start()
    try:
        yield line
    finally:
        line.stop()


def restore_cursor() -> None:
    """Show the cursor again, which the live line hides, before an immediate exit."""
    if is_terminal(sys.stderr):
        with contextlib.suppress(OSError):
            os.write(2, f"\r{SHOW_CURSOR}\n".encode())
