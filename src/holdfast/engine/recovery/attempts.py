"""Records how many attempts each task may have, for processes that do not know the task."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.store import Store, Tx

# The prefix of the facts in the ledger: one for each task that sets its attempts.
_FACT = "attempts."
# The task has set its attempts once, and does not set them any more.
_NONE = ""


async def record_attempts(store: Store, named: Mapping[str, int | None]) -> None:
    """Record the attempts that the authors of these tasks set, for every process that resumes them.

    The process that began last wins. Nothing is written if nothing has changed.
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
    """The attempts that the author of a task set; None if the author set none."""
    text = tx.boots.fact(f"{_FACT}{task_name}") or _NONE
    return int(text) if text.isdecimal() else None


def _text_of(attempts: int | None) -> str:
    return _NONE if attempts is None else str(attempts)
