"""status --recovery: what each step of the last start found and did."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from holdfast.api.starts import StartAsked, read_recovery
from holdfast.cli.invocation import Invocation
from holdfast.cli.output import ago
from holdfast.views.starts import RecoveryView, StartStepView, StartView

# Beside the longest name of a step.
_WIDTH = 62
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
# What steps count, in the plural; of other words, such as those of statuses, an s is no plural.
_SINGULAR = {"processes": "process"} | {
    f"{noun}s": noun
    for noun in (
        *("agent", "campaign", "channel", "interruption", "item", "notice", "parent", "restart"),
        *("resume", "run", "schedule", "suspect", "task"),
    )
}


def show_recovery(call: Invocation, boot: str | None) -> None:
    """The newest start of any process, or that of one boot."""
    asked = StartAsked(boot_id=boot)
    if call.gateway_url is not None:
        view = call.ask("gateway.recovery", asked, RecoveryView)
    else:
        with call.listing() as ledger:
            if ledger is None:
                view = RecoveryView(start=None)
            else:
                view = ledger.read_now(lambda tx: read_recovery(tx, asked))
    call.output.show(view, lambda: _print(call, view))


def _print(call: Invocation, view: RecoveryView) -> None:
    start, now = view.start, call.clock.now()
    if start is None:
        call.output.line("no gateway and no worker has started on this ledger yet")
        return
    call.output.fields(
        [
            ("start", start.boot_id),
            ("of", f"{start.role} on {start.host}, process {start.pid}"),
            ("when", f"{ago(start.began_at, now)} ago, {_took(start)}"),
            *((step.step, _step(step)) for step in start.steps),
        ]
    )
    for one in view.earlier:
        when = ago(one.began_at, now)
        call.output.say(f"before it: {one.role} {one.boot_id}, {when} ago, {_took(one)}")


def _step(step: StartStepView) -> str:
    """In lines that fit a terminal of 80 columns beside the name of the step."""
    said = [f"{_outcome(step)}: {_counts(step)}", *step.notes]
    if step.error is not None:
        said.append(f"failed: {step.error}")
    return "\n".join(line for one in said for line in textwrap.wrap(one, _WIDTH))


def _took(start: StartView) -> str:
    return "did not come to work" if start.seconds is None else f"at work after {start.seconds:.2f} s"


def _outcome(step: StartStepView) -> str:
    return "cut off" if step.seconds is None else f"{step.outcome} in {step.seconds:.2f} s"


def _counts(step: StartStepView) -> str:
    return ", ".join(_words(step)) or "nothing"


def _words(step: StartStepView) -> Iterator[str]:
    """What was counted, in words; what was not found is left out."""
    for name, number in step.counts.items():
        if number:
            words = _WORD.sub(" ", name).lower().split()
            yield f"{number:,} {' '.join(_SINGULAR.get(one, one) if number == 1 else one for one in words)}"
