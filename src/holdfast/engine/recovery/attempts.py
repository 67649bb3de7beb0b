"""How many attempts each task was given, recorded for processes that do not know the task."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.store import Store, Tx

# Among the facts of the ledger, one for each task that names its attempts.
_FACT = "attempts."
# The task named some once, and names none any more.
_NONE = ""


async def record_attempts(store: Store, named: Mapping[str, int | None]) -> None:
    """From now on every process that resumes these tasks knows the attempts that their authors named.

    The newest process to begin counts. Nothing is written when nothing has changed.
    """
    wanted = {f"{_FACT}{name}": _text_of(attempts) for name, attempts in sorted(named.items())}

    def changed(tx: Tx) -> dict[str, str]:
        known = tx.boots.facts(list(wanted))
        return {name: text for name, text in wanted.items() if known.get(name, _NONE) != text}

    if not await store.read(changed):
        return

    def record(tx: Tx) -> None:
        for name, text in changed(tx).items():
            tx.boots.set_fact(name, text)

    await store.write(record)


def recorded_attempts(tx: Tx, task_name: str) -> int | None:
    """The attempts that the author of a task named; None if none were named."""
    text = tx.boots.fact(f"{_FACT}{task_name}") or _NONE
    return int(text) if text.isdecimal() else None


def _text_of(attempts: int | None) -> str:
    return _NONE if attempts is None else str(attempts)
