"""A progress bar on stderr, drawn by rich: imported only when stderr is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


@contextlib.contextmanager
def bar(what: str, *, has_color: bool) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that takes the amount done and, if known, the total."""
    console = Console(stderr=True, no_color=not has_color)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        shown = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(shown, completed=done, total=total)
