"""The done criteria of a command agent: until they hold, its answer is a wake cycle and not the end."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from holdfast.config.sections import AgentSettings
from holdfast.core.done_checks import DoneCheck, command_succeeds, file_exists
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload, encode_payload
from holdfast.core.wake_contract import TaskDocument, known_as
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.done_checking import unmet_of
from holdfast.runtimes.command_turns import hidden_from_agents
from holdfast.store import Tx

_MOST_SHOWN = 20


def checks_of(settings: AgentSettings) -> tuple[DoneCheck, ...]:
    """The checks that the settings declare."""
    checks = [file_exists(path) for path in dict.fromkeys(settings.done_files)]
    if settings.done_command:
        checks.append(command_succeeds(settings.done_command))
    return tuple(checks)


async def unmet_criteria(
    run: Run, checks: tuple[DoneCheck, ...], *, directory: str | None, hidden: Collection[str]
) -> dict[str, str]:
    """The checks that do not hold, each with the reason. What was found is saved, so that a follow-up run,
    which goes through the same program again, takes the same way."""
    program, live = run._program, run._live  # noqa: SLF001 - a part of the run
    key = await program.key("done criteria")
    found = program.past.find(key)
    if found is None:
        # The agent may have written what the command runs, so it gets no more than the agent.
        without = tuple(hidden_from_agents(os.environ, hidden))
        placed = (msgspec.structs.replace(one, directory=directory, hidden=without) for one in checks)
        unmet = await unmet_of(tuple(placed), None)
        met = [one.name for one in checks if one.name not in unmet]
        now, claim = live.clock.now(), live.claim

        def tell(tx: Tx) -> None:
            tx.emit(EventKind.DONE_CHECKED, claim.run_id, at=now, task_id=claim.task_id, met=met, unmet=unmet)

        found = await program.waits.note(key, encode_payload("unmet", unmet), tell)
    return msgspec.convert(decode_payload(found.result), dict[str, str])


def undone(document: TaskDocument | None, run: Run, unmet: Mapping[str, str], now: datetime) -> TaskDocument:
    """The checkpoint of an agent that said it was done and is not: what is missing comes next."""
    task = run._live.task  # noqa: SLF001 - the task's own
    if document is None:
        document = TaskDocument(
            task_id=known_as(task.id, task.dedup_key),
            goal=task.goal,
            status="waiting",
            current_step=None,
            progress_pct=0,
            last_completed=[],
            next_actions=[],
            artifacts=[],
            errors=[],
            retry_count=0,
            updated_at=now,
        )
    said = "; ".join(f"{name}: {why}" for name, why in unmet.items())
    return msgspec.structs.replace(
        document,
        status="waiting",
        progress_pct=min(document.progress_pct, 99),
        next_actions=[f"make this hold: {name}" for name in list(unmet)[:_MOST_SHOWN]],
        errors=[*document.errors[-_MOST_SHOWN:], f"not done: {said}"],
    )
