"""The ledger's effects held against the world: what was repeated, lost, imagined, hidden or left open.

It looks at records only, so that a test can show that each kind of wrong is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.core.effect import Effect, EffectClass
from holdfast.core.transitions import EffectStatus, TaskStatus
from tests.crash.provider import Arrival

# What an agent notes when a step raised, before the kind of the error.
FAILED = "failed: "
# What it notes when a person said to skip the step.
SKIPPED = "None"

MOST_SHOWN = 8

_HAPPENED = frozenset({EffectStatus.DONE, EffectStatus.CONFIRMED})
_FREE = frozenset({EffectClass.READ, EffectClass.IDEMPOTENT})
# After an exception of these nothing is known for certain, and so it may have happened.
_MAY_RAISE = frozenset({EffectClass.KEYED, EffectClass.OPAQUE})


class Told(msgspec.Struct, frozen=True):
    """What an agent was told of one operation: its result, or that it failed."""

    op: str
    outcome: str

    @property
    def is_failure(self) -> bool:
        return self.outcome.startswith(FAILED)

    @property
    def is_result(self) -> bool:
        return not self.is_failure and self.outcome != SKIPPED


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """One agent as the ledger shows it."""

    status: TaskStatus
    # Whether it lets a failed step end it.
    is_brittle: bool
    # In the order in which it does them.
    ops: Sequence[str]
    # What it wrote down, in a durable list.
    told: Sequence[Told]
    failure: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything there is to look at, when all has ended."""

    seed: int
    # Every operation that any agent may do.
    classes: Mapping[str, EffectClass]
    arrivals: Sequence[Arrival]
    effects: Sequence[Effect]
    # Rows in a table of the program's own, by operation: what transactional steps have done.
    bookings: Mapping[str, int]
    agents: Mapping[str, Ended]
    # What agents were told, written down outside the ledger when they were.
    acknowledged: Sequence[Told]
    # What a person has decided, by effect.
    decided: Mapping[str, str]


class Kind(StrEnum):
    REPEATED = "repeated"
    LOST = "lost"
    IMAGINED = "imagined"
    HIDDEN = "hidden"
    OPEN = "left open"
    CHANGED = "changed"
    ENDED = "ended wrongly"


class Wrong(msgspec.Struct, frozen=True):
    kind: Kind
    # The operation, or the agent that ended wrongly.
    subject: str
    what: str


class Judge:
    """Finds everything that must not be, and shows what is known about it."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._arrivals: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in evidence.arrivals:
            self._arrivals[arrival.op].append(arrival)
        self._effects: dict[str, list[Effect]] = defaultdict(list)
        for effect in sorted(evidence.effects, key=lambda one: one.generation):
            self._effects[effect.occurrence.removeprefix("id:")].append(effect)
        self._told = {told.op: told for agent in evidence.agents.values() for told in agent.told}
        self._of_failed = {
            op
            for agent in evidence.agents.values()
            if agent.status is not TaskStatus.SUCCEEDED
            for op in agent.ops
        }

    def wrongs(self) -> list[Wrong]:
        found = [wrong for name, agent in self._evidence.agents.items() for wrong in _wrong_end(name, agent)]
        for op, effect_class in self._evidence.classes.items():
            found += self._wrong_effect(op, effect_class)
        return found + list(self._lost_facts())

    def performed(self, op: str) -> int:
        if self._evidence.classes[op] is EffectClass.TRANSACTIONAL:
            return self._evidence.bookings.get(op, 0)
        return sum(arrival.performed for arrival in self._arrivals[op])

    def _wrong_effect(self, op: str, effect_class: EffectClass) -> Iterator[Wrong]:
        times, rows, told = self.performed(op), self._effects[op], self._told.get(op)
        if times > 1 and effect_class not in _FREE:
            yield Wrong(Kind.REPEATED, op, f"the {effect_class} effect was performed {times} times")
        is_known = any(row.status in _HAPPENED for row in rows)
        if not times and is_known:
            yield Wrong(Kind.IMAGINED, op, "the ledger says that it happened, and it did not")
        if not times and told is not None and told.is_result:
            yield Wrong(Kind.IMAGINED, op, f"its agent was told {told.outcome!r}, and it did not happen")
        for row in rows:
            if row.status in {EffectStatus.INTENT, EffectStatus.UNKNOWN}:
                yield Wrong(Kind.OPEN, op, f"{row.id} is {row.status} at the end")
        if times and effect_class not in _FREE and not is_known:
            yield from self._wrong_silence(op, effect_class, rows, told)

    def _wrong_silence(
        self, op: str, effect_class: EffectClass, rows: list[Effect], told: Told | None
    ) -> Iterator[Wrong]:
        """It was performed, and the ledger does not say that it happened."""
        if not rows:
            yield Wrong(Kind.LOST, op, "it was performed, and the ledger knows nothing of it")
        elif any(row.review is not None for row in rows):
            return  # a person has looked at it
        elif effect_class not in _MAY_RAISE:
            yield Wrong(Kind.HIDDEN, op, f"the {effect_class} effect was performed and is {rows[-1].status}")
        elif told is not None and told.is_failure:
            return  # an error does not say that nothing happened, and its agent has seen it
        elif effect_class is EffectClass.OPAQUE or op not in self._of_failed:
            # What has ended its agent is seen with that; but of an opaque effect only a person can tell.
            yield Wrong(Kind.HIDDEN, op, "it was performed and failed, and neither agent nor person saw it")

    def _lost_facts(self) -> Iterator[Wrong]:
        """Once an agent has been told something, that is what it was told, whichever run tells it again."""
        for fact in self._evidence.acknowledged:
            at_last = self._told.get(fact.op)
            if at_last is not None and at_last != fact and not (fact.is_failure and self._may_change(fact)):
                yield Wrong(Kind.CHANGED, fact.op, f"it was {fact.outcome!r} and became {at_last.outcome!r}")
            if at_last is None and fact.op not in self._of_failed:
                yield Wrong(Kind.LOST, fact.op, f"its agent was told {fact.outcome!r} and does not know it")
        reviews = {str(one.id): one.review or b"" for one in self._evidence.effects}
        for effect_id, decision in self._evidence.decided.items():
            if f'"{decision}"'.encode() not in reviews.get(effect_id, b""):
                yield Wrong(Kind.LOST, effect_id, f"a person said {decision!r}, and it is not kept")

    def _may_change(self, fact: Told) -> bool:
        """Who does not catch a failure is tried again, and so is the step, or a person has decided."""
        return any(agent.is_brittle and fact.op in agent.ops for agent in self._evidence.agents.values())

    # --- what is shown

    def story(self, wrongs: Sequence[Wrong]) -> str:
        counts = {kind: sum(wrong.kind is kind for wrong in wrongs) for kind in Kind}
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        lines = [f"HOLDFAST_SEED={self._evidence.seed}: {shown}"]
        for wrong in wrongs[:MOST_SHOWN]:
            lines += [f"{wrong.kind}: {wrong.subject}: {wrong.what}", *self._known_of(wrong.subject)]
        if len(wrongs) > MOST_SHOWN:
            lines.append(f"and {len(wrongs) - MOST_SHOWN} more")
        return "\n".join(lines)

    def _known_of(self, op: str) -> Iterator[str]:
        for arrival in self._arrivals[op]:
            did = "performed" if arrival.performed else "not performed"
            yield f"    server: {did}; {arrival.act} (key {arrival.key})"
        for row in self._effects[op]:
            yield f"    ledger: {row.effect_class} {row.id} of {row.task_id}, {row.run_id}"
            yield (
                f"            generation {row.generation}, {row.status}, fence {row.fence}, "
                f"begun {row.created_at:%H:%M:%S.%f}, changed {row.updated_at:%H:%M:%S.%f}, "
                f"settle after {row.settle_after}"
            )
            yield f"            key {row.idempotency_key}, request {_shown(row.request)}"
            yield f"            outcome {_shown(row.outcome)}, review {_shown(row.review)}"
        for fact in self._evidence.acknowledged:
            if fact.op == op:
                yield f"    told:   {fact.outcome}"
        if op in self._told:
            yield f"    noted:  {self._told[op].outcome}"


def _wrong_end(name: str, agent: Ended) -> Iterator[Wrong]:
    if agent.status is TaskStatus.SUCCEEDED:
        done = [told.op for told in agent.told]
        if done != list(agent.ops):
            yield Wrong(Kind.ENDED, name, f"it should have done {list(agent.ops)} and did {done}")
    elif not (agent.is_brittle and agent.status is TaskStatus.FAILED):
        yield Wrong(Kind.ENDED, name, f"it is {agent.status}: {agent.failure}")


def _shown(content: bytes | None) -> str:
    return "-" if content is None else content.decode()[:300]
