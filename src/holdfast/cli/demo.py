"""demo: kills a busy process, lets another resume its work, and checks the ledger."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import click

from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output
from holdfast.config import read_store_url
from holdfast.demo.kill_and_resume import DemoView, kill_and_resume
from holdfast.demo.proof import ProofLine


class _Progress:
    """Prints lines on stderr, and draws a bar on a terminal."""

    def __init__(self, output: Output, count: Callable[[int, int | None], None]) -> None:
        self.say = output.say
        self.count = count


@click.command("demo")
@click.option(
    "--tasks",
    type=click.IntRange(1, 20_000),
    default=300,
    show_default=True,
    help="Number of concurrent tasks.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary ledger, so that you can inspect it.")
@shared_options
@click.pass_context
def demo(context: click.Context, tasks: int, *, keep: bool) -> None:
    """Kill a busy process and watch each task resume exactly once.

    The demo uses a temporary ledger, or the one given with --store if it has no work in flight;
    HOLDFAST_STORE is ignored. Exit status 1 if the ledger does not prove the promise.
    """
    call: Invocation = context.obj
    # SIGTERM exits normally, so that the child is killed and the temporary ledger removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place = None if call.store is None else read_store_url(call.store, key="--store")
    with call.output.progress("steps") as count:
        view = kill_and_resume(place, tasks=tasks, keep=keep, progress=_Progress(call.output, count))
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


def _expected(line: ProofLine) -> str:
    if line.expected is None:
        return ""
    return f"{line.expected:,} or more" if line.or_more else f"{line.expected:,}"
