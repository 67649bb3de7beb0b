"""Tx: one open transaction, its nouns, and the hints that it gives after its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.events import EventKind
from holdfast.core.redaction import redact_json
from holdfast.store.blobs import Blobs
from holdfast.store.boots import BootTable
from holdfast.store.checkpoints import CheckpointTable
from holdfast.store.contract import Params, Statements
from holdfast.store.effects import EffectTable
from holdfast.store.events import EventTable
from holdfast.store.journal import JournalTable
from holdfast.store.runs import RunTable
from holdfast.store.sealing import Sealing, Vault
from holdfast.store.tasks import TaskTable

if TYPE_CHECKING:
    from holdfast.store.alerts import AlertTable
    from holdfast.store.audit import AuditTable
    from holdfast.store.campaign_agents import CampaignAgentTable
    from holdfast.store.campaign_checkpoints import CampaignCheckpointTable, CampaignSaveTable
    from holdfast.store.campaign_pages import CampaignPages
    from holdfast.store.campaign_restores import CampaignRestoreTable
    from holdfast.store.campaigns import CampaignTable, ItemPhaseTable, ItemTable, SlotTable
    from holdfast.store.deliveries import DeliveryTable
    from holdfast.store.flows import FlowNodeTable, FlowTable
    from holdfast.store.fork_history import ForkHistory
    from holdfast.store.imports import ImportTable
    from holdfast.store.item_changes import ItemChangeTable
    from holdfast.store.kept_steps import KeptStepTable
    from holdfast.store.lists import ListTable
    from holdfast.store.mail import MailTable
    from holdfast.store.manifests import RestartTable
    from holdfast.store.messages import MessageTable
    from holdfast.store.paused_agents import PausedAgentTable
    from holdfast.store.questions import QuestionTable
    from holdfast.store.recorded import RecordedTable
    from holdfast.store.schedules import FiringTable, ScheduleTable, WakeTable
    from holdfast.store.sessions import SessionTable
    from holdfast.store.starts import StartTable
    from holdfast.store.turns import TurnTable

_NO_FACTS = b"{}"
_encode = msgspec.json.Encoder().encode

# Called before the commit with the key and all items that were deferred under it.
Deferred: TypeAlias = "Callable[[Tx, str, list[Any]], None]"
# The transaction is the one through which the write was watched, see `seen_through`.
_Deferred: TypeAlias = "tuple[str, Deferred, object, Tx]"
# How many events, counts and topics there were before a write, and what was deferred.
Mark: TypeAlias = "tuple[int, int, int, tuple[_Deferred, ...]]"


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
        self._deferred: list[_Deferred] = []
        self.tasks = TaskTable(self)
        self.runs = RunTable(self)
        self.journal = JournalTable(self)
        self.checkpoints = CheckpointTable(self)
        self.events = EventTable(self)
        self.boots = BootTable(self)
        self.blobs = Blobs(self)
        self.effects = EffectTable(self)

    # --- nouns that not every script uses, imported lazily: a script that uses none of them starts faster

    @cached_property
    def lists(self) -> ListTable:
        from holdfast.store.lists import ListTable

        return ListTable(self)

    @cached_property
    def mail(self) -> MailTable:
        from holdfast.store.mail import MailTable

        return MailTable(self)

    @cached_property
    def questions(self) -> QuestionTable:
        from holdfast.store.questions import QuestionTable

        return QuestionTable(self)

    @cached_property
    def fork_history(self) -> ForkHistory:
        from holdfast.store.fork_history import ForkHistory

        return ForkHistory(self)

    @cached_property
    def turns(self) -> TurnTable:
        from holdfast.store.turns import TurnTable

        return TurnTable(self)

    @cached_property
    def kept_steps(self) -> KeptStepTable:
        from holdfast.store.kept_steps import KeptStepTable

        return KeptStepTable(self)

    @cached_property
    def deliveries(self) -> DeliveryTable:
        from holdfast.store.deliveries import DeliveryTable

        return DeliveryTable(self)

    @cached_property
    def audit(self) -> AuditTable:
        from holdfast.store.audit import AuditTable

        return AuditTable(self)

    @cached_property
    def recorded(self) -> RecordedTable:
        from holdfast.store.recorded import RecordedTable

        return RecordedTable(self)

    @cached_property
    def imports(self) -> ImportTable:
        from holdfast.store.imports import ImportTable

        return ImportTable(self)

    @cached_property
    def flows(self) -> FlowTable:
        from holdfast.store.flows import FlowTable

        return FlowTable(self)

    @cached_property
    def flow_nodes(self) -> FlowNodeTable:
        from holdfast.store.flows import FlowNodeTable

        return FlowNodeTable(self)

    @cached_property
    def campaigns(self) -> CampaignTable:
        from holdfast.store.campaigns import CampaignTable

        return CampaignTable(self)

    @cached_property
    def item_changes(self) -> ItemChangeTable:
        from holdfast.store.item_changes import ItemChangeTable

        return ItemChangeTable(self)

    @cached_property
    def campaign_pages(self) -> CampaignPages:
        from holdfast.store.campaign_pages import CampaignPages

        return CampaignPages(self)

    @cached_property
    def items(self) -> ItemTable:
        from holdfast.store.campaigns import ItemTable

        return ItemTable(self)

    @cached_property
    def item_phases(self) -> ItemPhaseTable:
        from holdfast.store.campaigns import ItemPhaseTable

        return ItemPhaseTable(self)

    @cached_property
    def starts(self) -> StartTable:
        from holdfast.store.starts import StartTable

        return StartTable(self)

    @cached_property
    def paused_agents(self) -> PausedAgentTable:
        from holdfast.store.paused_agents import PausedAgentTable

        return PausedAgentTable(self)

    @cached_property
    def campaign_agents(self) -> CampaignAgentTable:
        from holdfast.store.campaign_agents import CampaignAgentTable

        return CampaignAgentTable(self)

    @cached_property
    def slots(self) -> SlotTable:
        from holdfast.store.campaigns import SlotTable

        return SlotTable(self)

    @cached_property
    def alerts(self) -> AlertTable:
        from holdfast.store.alerts import AlertTable

        return AlertTable(self)

    @cached_property
    def campaign_checkpoints(self) -> CampaignCheckpointTable:
        from holdfast.store.campaign_checkpoints import CampaignCheckpointTable

        return CampaignCheckpointTable(self)

    @cached_property
    def campaign_saves(self) -> CampaignSaveTable:
        from holdfast.store.campaign_checkpoints import CampaignSaveTable

        return CampaignSaveTable(self)

    @cached_property
    def campaign_restores(self) -> CampaignRestoreTable:
        from holdfast.store.campaign_restores import CampaignRestoreTable

        return CampaignRestoreTable(self)

    @cached_property
    def sessions(self) -> SessionTable:
        from holdfast.store.sessions import SessionTable

        return SessionTable(self)

    @cached_property
    def messages(self) -> MessageTable:
        from holdfast.store.messages import MessageTable

        return MessageTable(self)

    @cached_property
    def firings(self) -> FiringTable:
        from holdfast.store.schedules import FiringTable

        return FiringTable(self)

    @cached_property
    def schedules(self) -> ScheduleTable:
        from holdfast.store.schedules import ScheduleTable

        return ScheduleTable(self)

    @cached_property
    def wakes(self) -> WakeTable:
        from holdfast.store.schedules import WakeTable

        return WakeTable(self)

    @cached_property
    def restarts(self) -> RestartTable:
        from holdfast.store.manifests import RestartTable

        return RestartTable(self)

    # --- collected events, counts and hints

    def seen_through(self, statements: Statements) -> Tx:
        """This transaction with other statements; both share what they collect."""
        other = Tx(statements, self.sealing.vault)
        other.is_inline = self.is_inline
        other._events, other._counts, other._topics = self._events, self._counts, self._topics
        other._deferred = self._deferred
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

    def before_commit(self, key: str, act: Deferred, item: object) -> None:
        """Call `act(tx, key, items)` just before the commit: in the order of keys, and once for what was put
        off for one key with the same `act`, one after another.

        Why: several writes share one transaction, and each may change a record that others change, too, such
        as the flow of a task that ends. If each locked that record when it comes to it, two transactions
        could lock two of them in different orders, and deadlock.
        """
        self._deferred.append((key, act, item, self))

    def act_now(self, key: str) -> None:
        """Do what was deferred under this key. The caller has locked the record already."""
        while mine := [one for one in self._deferred if one[0] == key]:
            self._deferred[:] = [one for one in self._deferred if one[0] != key]
            _act(mine)

    def mark(self) -> Mark:
        """The position before one write of a group; `forget` drops what a failed write collected since."""
        return len(self._events), len(self._counts), len(self._topics), tuple(self._deferred)

    def forget(self, mark: Mark = (0, 0, 0, ())) -> None:
        del self._events[mark[0] :]
        del self._counts[mark[1] :]
        del self._topics[mark[2] :]
        # A write may have done what others put off; that is undone with it, and put off again.
        self._deferred[:] = mark[3]

    @property
    def is_silent(self) -> bool:
        return not (self._events or self._counts or self._topics or self._deferred)

    def flush(self) -> None:
        """Do what was deferred, then write the collected events and counts; called once, just before the
        commit."""
        while self._deferred:
            key = min(one[0] for one in self._deferred)
            self.act_now(key)
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


def _act(deferred: Sequence[_Deferred]) -> None:
    for act, same in groupby(deferred, key=lambda one: one[1]):
        mine = list(same)
        key, _, _, tx = mine[0]
        act(tx, key, [item for _, _, item, _ in mine])
