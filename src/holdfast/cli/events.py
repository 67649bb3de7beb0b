"""events: the event feed, its newest part or from a position, optionally followed live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.api.contract import EVERYTHING
from holdfast.api.events import EventsAsked, read_events, read_page
from holdfast.cli.invocation import Invocation, shared_options, task_target
from holdfast.cli.output import Output
from holdfast.store.events import START, parse_position
from holdfast.views.events import EventPageView, EventView

if TYPE_CHECKING:
    from holdfast.core.events import Event
    from holdfast.store.contract import Reader

LOOK_EVERY_S = 0.25
# Poll a remote gateway less often: it limits requests per second.
LOOK_ELSEWHERE_EVERY_S = 1.0
FOLLOWED_AT_ONCE = 1000


@click.command("events")
@click.option("--task", "task_id", callback=task_target, metavar="TASK", help="Only events of this task.")
@click.option("--after", metavar="POSITION", help="Only events after this position.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events; with --json one line for each.")
@shared_options
@click.pass_obj
def events(call: Invocation, task_id: str | None, after: str | None, limit: int, *, follow: bool) -> None:
    """Events in order: the newest ones, or those after a position.

    Exit status 4 if the position is too old: its events were pruned.
    """
    if after is not None:
        parse_position(after)  # reject a malformed position even if there is no ledger yet
    if follow:
        _follow(call, task_id, after, limit)
        return
    asked = EventsAsked(task_id=task_id, after=after, limit=limit)
    view = call.look_at_list(
        "events.list", asked, lambda tx: read_page(tx, asked), EventPageView(next_position=after or START)
    )
    call.output.show(view, lambda: _print_page(call.output, view))


def _follow(call: Invocation, task_id: str | None, after: str | None, limit: int) -> None:
    if call.gateway_url is not None:
        _follow_elsewhere(call, EventsAsked(task_id=task_id, after=after, limit=limit))
        return
    with call.reading() as ledger:
        if task_id is not None:
            target = task_id
            # Once: a session may soon stand for another task.
            task_id = ledger.read_now(lambda tx: EVERYTHING.resolve(tx, target))
        found = ledger.read_now(lambda tx: read_events(tx, task_id, after, limit))
        position = after or START
        while True:
            for event in found:
                _stream(call.output, EventView.of(event))
                position = event.position
            if not found:
                time.sleep(LOOK_EVERY_S)
            found = _more(ledger, task_id, position)


def _follow_elsewhere(call: Invocation, asked: EventsAsked) -> None:
    """Follow through a remote gateway. If the first call fails, raise at once; retry later ones."""
    page = call.ask("events.list", asked, EventPageView)
    while True:
        for event in page.events:
            _stream(call.output, event)
        if not page.events:
            time.sleep(LOOK_ELSEWHERE_EVERY_S)
        if asked.task_id is not None and page.events:
            # The id of the task that was found: a session may soon stand for another one.
            asked = msgspec.structs.replace(asked, task_id=page.events[0].task_id)
        more = EventsAsked(task_id=asked.task_id, after=page.next_position, limit=FOLLOWED_AT_ONCE)
        page = call.ask_patiently("events.list", more, EventPageView)


def _more(ledger: Reader, task_id: str | None, position: str) -> list[Event]:
    return ledger.read_now(lambda tx: read_events(tx, task_id, position, FOLLOWED_AT_ONCE))


def _stream(output: Output, view: EventView) -> None:
    output.stream(view, lambda: _print(output, view))


def _print_page(output: Output, view: EventPageView) -> None:
    for event in view.events:
        _print(output, event)
    if not view.events:
        output.say("no events to show")
    else:
        output.say(f"for later events, add --after {view.next_position}")


def _print(output: Output, view: EventView) -> None:
    facts = " ".join(f"{name}={_value(value)}" for name, value in view.facts.items())
    output.row((output.stamp(view.at), f"{view.kind:<21}", view.subject_id), facts)


def _value(value: object) -> str:
    from holdfast.views.text import one_line

    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return one_line(text) if " " not in text else f'"{one_line(text)}"'
