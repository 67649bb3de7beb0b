"""Bars for the phases of a campaign, drawn by rich: imported only when stderr is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.analysis.progress import PhaseCounts

Show = Callable[["Sequence[PhaseCounts]", str], None]


@contextlib.contextmanager
def bars(*, has_color: bool) -> Iterator[tuple[Show, Callable[[str], None]]]:
    """Yield a function that shows how far each phase is, with a note below, and one that prints a line above
    the bars."""
    console = Console(stderr=True, no_color=not has_color, highlight=False)
    progress = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]:>12}"),
        TimeElapsedColumn(),
        console=console,
        expand=True,
    )
    shown: dict[str, TaskID] = {}
    below = Text(style="dim", no_wrap=True, overflow="ellipsis")

    def show(phases: Sequence[PhaseCounts], note: str) -> None:
        for one in phases:
            if one.name not in shown:
                shown[one.name] = progress.add_task(one.name, more="")
            parts = [f"{one.running:,} running"] if one.running else []
            if one.failed:
                parts.append(f"{one.failed:,} failed")
            done = one.done + one.failed
            progress.update(shown[one.name], completed=done, total=one.total, more=", ".join(parts))
        below.plain = note

    with Live(Group(progress, below), console=console, transient=True, refresh_per_second=8):
        yield show, lambda text: console.print(text, markup=False, soft_wrap=True)
