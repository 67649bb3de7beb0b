"""Reads and writes of flows and their nodes, guarded by revision."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import IllegalMove, KeyConflict, NotFound, RevisionMismatch, RowDamaged
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.ids import FlowId, TaskId
from holdfast.core.imported import ImportedKind
from holdfast.core.redaction import redact_name
from holdfast.core.task import Failure
from holdfast.core.transitions import FlowNodeStatus, FlowStatus, is_terminal, sources_of
from holdfast.store.blobs import pack
from holdfast.store.contract import Row
from holdfast.store.records import Records
from holdfast.store.rows.flows import (
    changing_columns,
    flow_from_row,
    flow_node_from_row,
    row_from_flow,
    row_from_flow_node,
)
from holdfast.store.tasks import LAST, resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# How many nodes one transaction of retention deletes; at least those of one flow.
MOST_PRUNED_NODES = 10_000


class FlowTable(Records[Flow]):
    noun = "flow"

    def _read(self, row: Row) -> Flow:
        return flow_from_row(row, self._sealing)

    def _row_of(self, record: Flow) -> dict[str, Any]:
        return row_from_flow(record, self._sealing)

    def create(self, record: Flow) -> Flow:
        """Store it; if a flow with its id exists, return that one instead."""
        if self._sql.one("insert_flow", self._row_of(record)) is None:
            return self.get(record.id)
        self._tx.count("flow", record.status, 1)
        return record

    def lock(self, flow_id: str) -> Flow:
        """The flow, locked until this transaction ends. Lock its tasks before it, never after it."""
        row = self._sql.one("lock_flow", {"id": flow_id})
        if row is None:
            raise NotFound("flow", flow_id)
        return self._read(row)

    def find(self, flow_id: str) -> Flow | None:
        row = self._sql.one("get_flow", {"id": flow_id})
        return None if row is None else self._read(row)

    def get_many(self, flow_ids: Sequence[str]) -> dict[str, Flow]:
        found = self._sql.all("get_flows", {"ids": self._sql.pack(flow_ids)})
        return {row[0]: self._read(row) for row in found}

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Flow:
        """Raises RevisionMismatch when the flow has changed since `revision` was read."""
        before = self.get(record_id)
        revision = guards.get("revision", before.revision)
        if revision != before.revision:
            raise RevisionMismatch(record_id, int(str(revision)), before.revision)
        moved = super().move(record_id, to, now=now, revision=revision)
        self._tx.moved("flow", before.status, moved.status)
        return moved

    def save(self, before: Flow, after: Flow) -> None:
        """Write what changes of a flow that this transaction holds. Raises IllegalMove if the table of moves
        does not allow its new status."""
        sources = sources_of(after.status) if after.status is not before.status else (before.status.value,)
        params = changing_columns(after, self._sealing) | {
            "id": before.id,
            "from": before.status.value,
            "from_revision": before.revision,
            "sources": self._sql.pack(sources),
        }
        if self._sql.one("save_flow", params) is None:
            raise IllegalMove("flow", before.id, before.status.value, after.status.value)
        if after.status is not before.status:
            self._tx.moved("flow", before.status, after.status)

    def reopen(self, flow: Flow, *, now: datetime) -> Flow:
        """A mirrored flow whose task was reopened is queued again."""
        row = self._sql.one("reopen_flow", {"id": flow.id, "now": to_micros(now)})
        if row is None:
            raise IllegalMove("flow", flow.id, flow.status.value, FlowStatus.QUEUED.value)
        self._tx.moved("flow", flow.status, FlowStatus.QUEUED)
        return self._read(row)

    def resolve(self, prefix: str, *, owner: str | None = None) -> FlowId:
        """The one id with this prefix, or the flow that had this id in the gateway that it was imported from;
        only among an owner's flows, if one is given."""
        try:
            if owner is None:
                return FlowId(resolve(self._tx, "flow", "find_flows", prefix))
            return FlowId(resolve(self._tx, "flow", "find_flows_of_owner", prefix, owner=redact_name(owner)))
        except NotFound:
            imported = self.get_many(self._tx.imports.find(ImportedKind.FLOW, prefix, limit=2)).values()
            found = [flow.id for flow in imported if owner is None or flow.owner == redact_name(owner)]
            if len(found) == 1:
                return found[0]
            raise

    def page(
        self,
        *,
        statuses: Sequence[FlowStatus] = (),
        owner: str | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Flow]:
        """Newest first; the last id of a page is the page token of the next."""
        owned = {} if owner is None else {"owner": redact_name(owner)}
        whose = "" if owner is None else "_of_owner"
        place: dict[str, object] = {"before": before, "limit": limit, **owned}
        if not statuses:
            rows = self._sql.all(f"page_of_flows{whose}", place)
        else:
            pages = [
                self._sql.all(f"page_of_flows{whose}_in_status", place | {"status": status.value})
                for status in dict.fromkeys(statuses)
            ]
            rows = list(islice(heapq.merge(*pages, key=_id_of, reverse=True), limit))
        return [self._read(row) for row in rows]

    def to_stop(self, *, after: str = "", limit: int) -> list[Flow]:
        """Live flows whose cancel was requested, oldest first; the last id is the page token of the next."""
        return [self._read(row) for row in self._sql.all("flows_to_stop", {"after": after, "limit": limit})]

    # --- keys

    def take_key(self, flow: Flow, digest: bytes, *, holds_secret: bool) -> Flow | None:
        """None when this flow got its dedup key; otherwise the flow that had it first.

        `digest` is that of its definition. Raises KeyConflict if the first flow has another one.
        """
        assert flow.dedup_key is not None
        params = {
            "owner": flow.owner,
            "key": flow.dedup_key,
            "flow_id": flow.id,
            "definition_digest": self._sealing.conceal(digest, of_secret=True) if holds_secret else digest,
            "now": to_micros(flow.created_at),
        }
        if self._sql.one("insert_flow_key", params) is not None:
            return None
        row = self._sql.one("get_flow_key", {"owner": flow.owner, "key": flow.dedup_key})
        if row is None:  # its tombstone expired between the two statements
            return self.take_key(flow, digest, holds_secret=holds_secret)
        if row[0] == flow.id:
            return None
        if not self._sealing.is_same(bytes(row[1]), digest, "flow", row[0]):
            raise KeyConflict(flow.dedup_key, row[0], of_definition=True)
        return self.find(row[0]) or _from_tombstone(flow, row)

    def forget_keys(self, *, now: datetime) -> None:
        self._sql.run("delete_expired_flow_keys", {"now": to_micros(now)})

    # --- retention

    def to_prune(self, *, now: datetime, limit: int) -> list[str]:
        """Ended flows whose retention is over, oldest first, locked until this transaction ends. A page ends
        early if the flows have many nodes: those are deleted in the same transaction."""
        found: list[str] = []
        room = MOST_PRUNED_NODES
        for flow_id, nodes in self._sql.all("flows_to_prune", {"now": to_micros(now), "limit": limit}):
            room -= nodes
            if found and room < 0:
                break
            found.append(flow_id)
        return found

    def past_retention(self, *, now: datetime, limit: int) -> list[str]:
        """The same without locking them, for a preview."""
        params = {"now": to_micros(now), "limit": limit}
        return [row[0] for row in self._sql.all("flows_past_retention", params)]

    def unstamped(self, *, limit: int) -> list[tuple[str, datetime]]:
        """Ended flows without a time to clean them up, and when each ended."""
        found = self._sql.all("unstamped_flows", {"limit": limit})
        return [(str(row[0]), from_micros(row[1])) for row in found]

    def stamp(self, flow_id: str, *, cleanup_after: datetime) -> bool:
        """Whether this call gave the ended flow its time to clean it up."""
        params = {"id": flow_id, "cleanup_after": to_micros(cleanup_after)}
        return self._sql.one("stamp_flow", params) is not None

    def live_tasks(self, flow_ids: Sequence[str]) -> dict[str, int]:
        """How many tasks of each of these flows are alive; a flow without any is left out."""
        found = self._sql.all("live_tasks_of_flows", {"ids": self._sql.pack(flow_ids)})
        return {str(row[0]): int(row[1]) for row in found}

    def delete(self, flow_ids: Sequence[str], *, keys_expire_at: datetime) -> list[str]:
        """Delete those that have ended, with their nodes; their dedup keys stay as tombstones."""
        ids = self._sql.pack(flow_ids)
        self._sql.run("bury_flow_keys", {"ids": ids, "expires_at": to_micros(keys_expire_at)})
        gone = self._sql.all("delete_flows", {"ids": ids})
        for row in gone:
            self._tx.count("flow", FlowStatus(row[1]), -1)
        deleted = [str(row[0]) for row in gone]
        self._tx.imports.bury(deleted, expires_at=keys_expire_at)
        self._sql.run("delete_nodes_of_flows", {"ids": self._sql.pack(deleted)})
        self._tx.blobs.stop_using(deleted)
        return deleted


class FlowNodeTable:
    """The nodes of flows. A change needs the lock of the flow."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def _read(self, row: Row) -> FlowNode:
        node = flow_node_from_row(row, self._sealing)
        if node.is_damaged or node.is_sealed:
            return node
        try:
            return msgspec.structs.replace(node, plan=self._tx.blobs.open(node.plan))
        except RowDamaged:
            # Damage of what follows must not keep a task from ending: `read_plan` tells it.
            return msgspec.structs.replace(node, is_damaged=True)

    def create_many(self, nodes: Sequence[FlowNode]) -> None:
        rows = []
        for node in nodes:
            packed = pack(node.plan, self._sealing)
            stored = msgspec.structs.replace(node, plan=packed.stored)
            self._tx.blobs.keep(node.flow_id, packed)
            rows.append(row_from_flow_node(stored, self._sealing))
        self._sql.many("insert_flow_node", rows)

    def of_task(self, task_id: str) -> FlowNode | None:
        row = self._sql.one("flow_node_of_task", {"task_id": task_id})
        return None if row is None else self._read(row)

    def get(self, flow_id: str, node_id: str) -> FlowNode:
        """The node with this id. Raises NotFound."""
        row = self._sql.one("flow_node_by_id", {"flow_id": flow_id, "node_id": node_id})
        if row is None:
            raise NotFound("node", node_id, within=flow_id)
        return self._read(row)

    def at(self, flow_id: str, places: Sequence[str]) -> list[FlowNode]:
        params = {"flow_id": flow_id, "places": self._sql.pack(places)}
        return [self._read(row) for row in self._sql.all("get_flow_nodes", params)]

    def page(self, flow_id: str, *, after: str = "", limit: int = 100) -> list[FlowNode]:
        """In the order of the definition; the place of the last one is the page token of the next page."""
        params = {"flow_id": flow_id, "after": after, "limit": limit}
        return [self._read(row) for row in self._sql.all("page_of_flow_nodes", params)]

    def failed(self, flow_id: str, *, after: str = "", limit: int = 100) -> list[FlowNode]:
        """Nodes that ended without success or could not be started, in the order of the definition."""
        params = {"flow_id": flow_id, "after": after, "limit": limit}
        return [self._read(row) for row in self._sql.all("failed_flow_nodes", params)]

    def meet_needs(self, flow_id: str, places: Sequence[str], *, now: datetime) -> list[FlowNode]:
        """One need of each of these nodes has succeeded: returns those that need nothing more."""
        if not places:
            return []
        params = {"flow_id": flow_id, "places": self._sql.pack(places), "now": to_micros(now)}
        found = [self._read(row) for row in self._sql.all("meet_flow_needs", params)]
        return sorted((node for node in found if node.unmet == 0), key=lambda node: node.place)

    def move(
        self,
        node: FlowNode,
        to: FlowNodeStatus,
        *,
        now: datetime,
        task_id: str | None = None,
        failure: Failure | None = None,
    ) -> FlowNode | None:
        """The node in its new status; None if it is no longer in the status in which it was read."""
        params = {
            "flow_id": node.flow_id,
            "place": node.place,
            "from": node.status.value,
            "to": to.value,
            "sources": self._sql.pack(sources_of(to)),
            "task_id": node.task_id if task_id is None else TaskId(task_id),
            "failure": None if failure is None else msgspec.json.encode(failure),
            "now": to_micros(now),
        }
        row = self._sql.one("move_flow_node", params)
        return None if row is None else self._read(row)


def _id_of(row: Row) -> str:
    return str(row[0])


def _from_tombstone(flow: Flow, row: Row) -> Flow:
    """What a dedup key still records of its flow after retention deleted it."""
    ended_as = FlowStatus(row[2] or FlowStatus.LOST.value)
    assert is_terminal(ended_as)
    pruned = Failure(kind="pruned", message="the flow ended and its retention is over; its tasks are gone")
    return msgspec.structs.replace(
        flow, id=FlowId(row[0]), status=ended_as, failure=pruned, ended_at=flow.created_at
    )
