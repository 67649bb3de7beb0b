"""Tx: one open transaction, its nouns, and the hints that it gives after its commit."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.events import EventKind
from holdfast.core.redaction import redact_json
from holdfast.store.blobs import Blobs
from holdfast.store.boots import Boots
from holdfast.store.checkpoints import Checkpoints
from holdfast.store.contract import Params, Statements
from holdfast.store.effects import Effects
from holdfast.store.events import Events
from holdfast.store.fork_history import ForkHistory
from holdfast.store.journal import Journal
from holdfast.store.lists import Lists
from holdfast.store.mail import Mailbox
from holdfast.store.questions import Questions
from holdfast.store.runs import Runs
from holdfast.store.sealing import Sealing, Vault
from holdfast.store.tasks import Tasks
from holdfast.store.turns import Turns

if TYPE_CHECKING:
    from holdfast.store.audit import AuditLog
    from holdfast.store.deliveries import Deliveries
    from holdfast.store.flows import Flows
    from holdfast.store.manifests import Restarts
    from holdfast.store.messages import Messages
    from holdfast.store.schedules import Firings, Wakes
    from holdfast.store.sessions import Sessions

_NO_FACTS = b"{}"
_encode = msgspec.json.Encoder().encode


class Tx:
    """The argument of every write. It collects events, counts and hints; events and counts are written once,
    before the commit, and hints are given after it."""

    def __init__(self, statements: Statements, vault: Vault) -> None:
        self.statements = statements
        self.sealing = Sealing(vault, self)
        # Whether it runs on the thread of an event loop, so that nothing in it may take long.
        self.is_inline = False
        self._events: list[Params] = []
        self._counts: list[tuple[str, str, int]] = []
        self._topics: list[str] = []
        self.tasks = Tasks(self)
        self.runs = Runs(self)
        self.journal = Journal(self)
        self.turns = Turns(self)
        self.lists = Lists(self)
        self.mail = Mailbox(self)
        self.questions = Questions(self)
        self.checkpoints = Checkpoints(self)
        self.events = Events(self)
        self.boots = Boots(self)
        self.blobs = Blobs(self)
        self.effects = Effects(self)
        self.fork_history = ForkHistory(self)

    # --- nouns of a gateway, imported lazily: a script that uses none of them starts faster

    @cached_property
    def deliveries(self) -> Deliveries:
        from holdfast.store.deliveries import Deliveries

        return Deliveries(self)

    @cached_property
    def audit(self) -> AuditLog:
        from holdfast.store.audit import AuditLog

        return AuditLog(self)

    @cached_property
    def flows(self) -> Flows:
        from holdfast.store.flows import Flows

        return Flows(self)

    @cached_property
    def sessions(self) -> Sessions:
        from holdfast.store.sessions import Sessions

        return Sessions(self)

    @cached_property
    def messages(self) -> Messages:
        from holdfast.store.messages import Messages

        return Messages(self)

    @cached_property
    def firings(self) -> Firings:
        from holdfast.store.schedules import Firings

        return Firings(self)

    @cached_property
    def wakes(self) -> Wakes:
        from holdfast.store.schedules import Wakes

        return Wakes(self)

    @cached_property
    def restarts(self) -> Restarts:
        from holdfast.store.manifests import Restarts

        return Restarts(self)

    # --- collected events, counts and hints

    def seen_through(self, statements: Statements) -> Tx:
        """This transaction with other statements; both share what they collect."""
        other = Tx(statements, self.sealing.vault)
        other.is_inline = self.is_inline
        other._events, other._counts, other._topics = self._events, self._counts, self._topics
        return other

    def emit(
        self,
        kind: EventKind,
        subject_id: str,
        *,
        at: datetime,
        task_id: str | None = None,
        **facts: object,
    ) -> None:
        """Add an event; it enters the feed if this transaction commits."""
        self._events.append(
            {
                "at": to_micros(at),
                "kind": kind.value,
                "task_id": task_id,
                "subject_id": subject_id,
                "facts": redact_json(_encode(facts)) if facts else _NO_FACTS,
            }
        )

    def count(self, noun: str, status: StrEnum | None, by: int) -> None:
        """Change the count of records in a status."""
        if status is not None and by:
            self._counts.append((noun, status.value, by))

    def moved(self, noun: str, status: StrEnum | None, to: StrEnum | None, by: int = 1) -> None:
        """Count that `by` records moved from one status to another."""
        self.count(noun, status, -by)
        self.count(noun, to, by)

    def hint(self, topic: str) -> None:
        """Wake the waiters of a topic after the commit."""
        self._topics.append(topic)

    def mark(self) -> tuple[int, int, int]:
        """The position before one write of a group; `forget` drops what a failed write collected since."""
        return len(self._events), len(self._counts), len(self._topics)

    def forget(self, mark: tuple[int, int, int] = (0, 0, 0)) -> None:
        del self._events[mark[0] :]
        del self._counts[mark[1] :]
        del self._topics[mark[2] :]

    @property
    def is_silent(self) -> bool:
        return not (self._events or self._counts or self._topics)

    def flush(self) -> None:
        """Write the collected events and counts; called once, just before the commit."""
        if self._events:
            self.statements.many("insert_event", self._events)
        if self._counts:
            totals: Counter[tuple[str, str]] = Counter()
            for noun, status, by in self._counts:
                totals[noun, status] += by
            self.statements.many(
                "add_to_counter",
                [
                    {"noun": noun, "status": status, "amount": amount}
                    for (noun, status), amount in sorted(totals.items())
                    if amount
                ],
            )

    def take_topics(self) -> set[str]:
        """The topics to notify after the commit; clears everything collected."""
        topics = set(self._topics)
        if self._events:
            topics.add("events")
        self.forget()
        return topics
