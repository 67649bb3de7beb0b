"""demo: kills a busy campaign, lets another process go on with it, and checks the ledger."""

from __future__ import annotations

import contextlib
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from holdfast.analysis.progress import PhaseCounts
from holdfast.app import Settings
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted, is_terminal, may_color
from holdfast.config import read_store_url
from holdfast.demo.kill_and_resume import DemoProgress, DemoView, kill_and_resume
from holdfast.demo.proof import ProofLine
from holdfast.views.text import one_line


class _Progress:
    """Prints lines on stderr, below them bars if that is a terminal."""

    def __init__(
        self, say: Callable[[str], None], show: Callable[[Sequence[PhaseCounts], str], None]
    ) -> None:
        self.say = say
        self.show = show


@contextlib.contextmanager
def _progress(output: Output) -> Iterator[DemoProgress]:
    if not is_terminal(sys.stderr):
        yield _Progress(output.say, lambda _phases, _note: None)
        return
    from holdfast.cli.phase_bars import bars

    with bars(has_color=may_color(sys.stderr)) as (show, say):
        yield _Progress(lambda text: say(one_line(text, 2000)), show)


@click.command("demo")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of git repositories or Python packages. [default: the installed Python packages]",
)
@click.option(
    "--items",
    type=click.IntRange(1, 20_000),
    default=120,
    show_default=True,
    help="Number of items to analyse, at most.",
)
@click.option(
    "--kills", type=click.IntRange(1, 20), default=1, show_default=True, help="How often a process is killed."
)
@click.option(
    "--pause",
    "pause_s",
    type=click.FloatRange(0, 60),
    default=0.5,
    show_default=True,
    help="Each step rests up to so many seconds, so that you can watch.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary ledger and the report, to look at them.")
@click.option("--no-wait", is_flag=True, help="End when the proof is printed, without the dashboard.")
@shared_options
@click.pass_context
def demo(
    context: click.Context,
    folder: Path | None,
    items: int,
    kills: int,
    pause_s: float,
    *,
    keep: bool,
    no_wait: bool,
) -> None:
    """Kill a busy campaign and watch each item go on exactly once.

    The campaign analyses the installed Python packages, or the repositories in a folder: lines, dependencies,
    tests and last change of each. Half-way its process is killed by SIGKILL, and another one goes on. The
    proof is read from the ledger.

    In a terminal the dashboard then shows the campaign, until you press Enter.

    The demo uses a temporary ledger, or the one given with --store if it has no work in flight;
    HOLDFAST_STORE is ignored. Exit status 1 if the ledger does not prove the promise.
    """
    call: Invocation = context.obj
    _exit_normally_on(signal.SIGTERM, signal.SIGHUP)
    place = None if call.store is None else read_store_url(call.store, key="--store")
    with contextlib.ExitStack() as stack:
        with _progress(call.output) as progress:
            played = kill_and_resume(
                place,
                folder=folder or Path(sysconfig.get_paths()["purelib"]),
                items=items,
                kills=kills,
                pause_s=pause_s,
                keep=keep,
                progress=progress,
            )
            view, settings = stack.enter_context(played)
        call.output.show(view, lambda: _print(call.output, view))
        if not no_wait and _is_watched(call.output):
            _show_dashboard(call.output, settings, campaign=view.owner)
    if not view.holds:
        context.exit(FAILED)


def _exit_normally_on(*signals: signal.Signals) -> None:
    """Let these signals end the demo as an exit does, so that its processes end and its ledger is removed.
    One that the caller ignores, such as SIGHUP under nohup, stays ignored."""
    for one in signals:
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, lambda number, _frame: sys.exit(128 + number))


def _is_watched(output: Output) -> bool:
    """Whether a person is there who can press Enter."""
    return not output.as_json and is_terminal(sys.stdin) and is_terminal(sys.stdout)


def _show_dashboard(output: Output, settings: Settings, *, campaign: str) -> None:
    """Keep the dashboard open, with the page of the campaign, until a person presses Enter."""
    import termios

    from holdfast.demo.gateway import dashboard_link

    page = f"/dashboard/campaigns/{campaign}"
    with contextlib.suppress(KeyboardInterrupt), dashboard_link(settings, page=page) as link:
        if link is None:
            output.say("the gateway with the dashboard could not start; try: holdfast up")
            return
        output.line()
        output.line(f"{output.paint('see it in the dashboard:', 'bold')} {link}")
        output.line("the link works once, within ten minutes; press Enter to end the demo")
        # An Enter that was pressed while the campaign ran does not count.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        sys.stdin.readline()


def _print(output: Output, view: DemoView) -> None:
    where = ("analysed", f"{view.items:,} items in {view.folder}")
    output.fields([where, *view.report.fields()])
    output.line()
    width = max(len(line.what) for line in view.lines)
    output.line(output.paint(f"{'':{width}}  {'expected':>10}  {'found':>8}", "bold"))
    for line in view.lines:
        verdict = output.paint_status("ok" if line.holds else "fail") if line.expected is not None else ""
        output.line(f"{line.what:{width}}  {_expected(line):>10}  {line.found:>8,}  {verdict}".rstrip())
    output.line()
    if view.resume_ms:
        times = ", ".join(f"{ms:,} ms" for ms in view.resume_ms)
        output.line(f"from each new process to its last follow-up run: {times}")
    verdict = "proved by the ledger" if view.holds else "NOT proved by the ledger"
    counts = (
        f"{view.items:,} items, {view.steps:,} steps, {counted(view.kills, 'kill')}, "
        f"{view.resumed:,} resumed, {view.lost:,} lost, {view.repeated:,} repeated"
    )
    color = "green" if view.holds else "red"
    output.line(output.paint(f"{counts}: {verdict}, in {view.seconds:.1f} s", color))


def _expected(line: ProofLine) -> str:
    if line.expected is None:
        return ""
    return f"{line.expected:,} or more" if line.or_more else f"{line.expected:,}"
