"""demo: kills a process full of work, lets another go on, and prints what the ledger proves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import click

from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output
from holdfast.config import read_store_url
from holdfast.demo.proof import Line
from holdfast.demo.stage import DemoView, perform


class _Onlooker:
    """Lines for everyone, a bar for a terminal."""

    def __init__(self, output: Output, tell: Callable[[int, int | None], None]) -> None:
        self.say = output.say
        self.tell = tell


@click.command("demo")
@click.option(
    "--tasks", type=click.IntRange(1, 20_000), default=300, show_default=True, help="How many at once."
)
@click.option("--keep", is_flag=True, help="Leave the temporary ledger there, to look around in it.")
@shared_options
@click.pass_context
def demo(context: click.Context, tasks: int, *, keep: bool) -> None:
    """Kill a process full of work, and watch each task go on exactly once.

    It plays in a temporary ledger, or in the one named by --store on this very command line (never in that of
    HOLDFAST_STORE), if that has no work in flight. Status 1 when the ledger does not prove it.
    """
    call: Invocation = context.obj
    # An end like any other: the child is killed and the temporary ledger removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place = None if call.store is None else read_store_url(call.store, key="--store")
    with call.output.progress("steps") as tell:
        view = perform(place, tasks=tasks, keep=keep, audience=_Onlooker(call.output, tell))
    call.output.show(view, lambda: _print(call.output, view))
    if not view.holds:
        context.exit(FAILED)


def _print(output: Output, view: DemoView) -> None:
    output.line()
    width = max(len(line.what) for line in view.lines)
    output.line(output.paint(f"{'':{width}}  {'expected':>10}  {'found':>8}", "bold"))
    for line in view.lines:
        verdict = output.paint_status("ok" if line.holds else "fail") if line.expected is not None else ""
        output.line(f"{line.what:{width}}  {_expected(line):>10}  {line.found:>8,}  {verdict}".rstrip())
    output.line()
    if view.resume_ms is not None:
        output.line(f"from the new process to the last follow-up run: {view.resume_ms:,} ms")
    verdict = "proved by the ledger" if view.holds else "NOT proved by the ledger"
    output.line(output.paint(f"{verdict}, in {view.took_s:.1f} s", "green" if view.holds else "red"))


def _expected(line: Line) -> str:
    if line.expected is None:
        return ""
    return f"{line.expected:,} or more" if line.or_more else f"{line.expected:,}"
