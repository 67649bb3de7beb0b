"""Forks: a new task with the past of another up to one of its turns; no later effect is passed silently."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.effect import Effect
from holdfast.core.errors import BadInput, EffectsInTheWay, Refused
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id
from holdfast.core.payload import decode_payload
from holdfast.core.plan import Plan
from holdfast.core.program_records import FinishedTurn, ListDelta, LoopPosition, Mail, StoredValue, TurnMarks
from holdfast.core.step import Artifact, Note, Step
from holdfast.core.task import Task
from holdfast.core.transitions import EffectStatus
from holdfast.engine.journal.scopes import SPENT, Marks, digest_of_values
from holdfast.engine.ledger.ledger import NewTask, create_prepared, opened, owned, prepare
from holdfast.engine.program.effect_reviews import may_have_happened
from holdfast.engine.program.effects import keyed_by
from holdfast.engine.recovery.reopen import FORGIVEN
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import Packed, pack
from holdfast.store.sealing import Sealing

Effects = Literal["refuse", "keep", "compensate", "acknowledge"]
Compensate = Callable[[Effect, Any], Awaitable[object] | object]

START = "start"
_WAYS = ("refuse", "keep", "compensate", "acknowledge")
HAPPENED = frozenset({EffectStatus.DONE, EffectStatus.CONFIRMED})
OPEN = frozenset({EffectStatus.INTENT, EffectStatus.UNKNOWN})
_PAGE = 1000


class ForkSource(msgspec.Struct, frozen=True, kw_only=True):
    """The task that is forked, as it stands, and the turn after which the fork goes on; None: its start."""

    task: Task
    turn: FinishedTurn | None
    loops: dict[str, LoopPosition]
    # The names of the turns of that loop that are finished by then.
    finished: frozenset[str]
    steps: list[Step]
    ops: dict[str, bytes]
    deltas: list[ListDelta]
    values: dict[str, StoredValue]
    effects: list[Effect]
    # The plan as it was then; None if there was none, or if it is no longer known.
    plan: Plan | None
    plan_turns: dict[str, int]
    notes: list[Note]
    artifacts: list[Artifact]
    mail: list[Mail]
    living_children: frozenset[str]


class ForkSeed(msgspec.Struct, frozen=True, kw_only=True):
    """What of a task's past a fork begins with."""

    loops: list[LoopPosition] = []
    steps: list[tuple[Step, Packed]] = []
    ops: dict[str, bytes] = {}
    deltas: list[tuple[ListDelta, Packed]] = []
    values: list[StoredValue] = []
    plan: Plan | None = None
    notes: list[Note] = []
    artifacts: list[Artifact] = []
    mail: list[tuple[Mail, Packed]] = []


async def fork(
    store: Store,
    clock: Clock,
    task_id: str,
    *,
    at: str,
    effects: Effects = "refuse",
    key: str | None = None,
    owner: str | None = None,
    compensate: Compensate | None = None,
) -> Task:
    """The new task, durable when this returns. The one that is forked is not changed.

    Raises EffectsInTheWay if effects happened after that turn and the caller did not say what becomes of
    them; Refused if the past up to there is no longer known; BadInput if there is no such turn.
    """
    check_id("task", task_id)
    if effects not in _WAYS:
        raise BadInput("effects", f"one of {', '.join(_WAYS)} is needed")
    if (compensate is not None) != (effects == "compensate"):
        raise BadInput(
            "compensate",
            'a function that undoes one effect goes with effects="compensate": its arguments are '
            "not stored, so only you know how",
        )
    source = await store.read(lambda tx: look_at(tx, task_id, at, owner=owner))
    kept, happened = _cut(source, effects, store.sealing)
    if compensate is not None:
        for effect in reversed(happened):
            await undo_effect(effect, compensate, store.sealing)
    return await store.write(
        forking(
            source,
            kept,
            at=at,
            way=effects,
            passed=happened,
            key=key,
            now=clock.now(),
        )
    )


def fork_now(
    store: Store,
    task_id: str,
    *,
    at: str,
    effects: Literal["refuse", "keep", "acknowledge"] = "refuse",
    key: str | None = None,
    owner: str | None = None,
    now: datetime,
) -> Task:
    """The same for a caller without an event loop, and so without a function that undoes effects."""
    source = store.read_now(lambda tx: look_at(tx, check_id("task", task_id), at, owner=owner))
    kept, happened = _cut(source, effects, store.sealing)
    return store.write_now(forking(source, kept, at=at, way=effects, passed=happened, key=key, now=now))


def _cut(source: ForkSource, way: Effects, sealing: Sealing) -> tuple[ForkSeed, list[Effect]]:
    """What the fork begins with, and the effects that have happened since."""
    kept = kept_of(source, sealing)
    passed = [effect for effect in source.effects if not is_in_past(source, kept, effect)]
    happened = settle_passed(source, passed, way)
    if way == "keep":
        # The fork finds them and does not do them again.
        kept.steps.extend((step, pack(step.result, sealing)) for step in (one.as_step() for one in happened))
    return kept, happened


# --- looking


def look_at(tx: Tx, task_id: str, at: str, *, owner: str | None = None) -> ForkSource:
    """Everything about a task that a fork may need, in one snapshot. Raises RowDamaged."""
    task = opened(tx, owned(tx.tasks.get(task_id), owner))
    loops = tx.turns.loops([task_id]).get(task_id, {})
    turn = None if at == START else _find_turn(tx, task_id, at, loops)
    steps = tx.journal.steps(task_id)
    plans = tx.journal.plans([task_id])
    children = [child.id for child in tx.tasks.children(task_id, only_alive=True)]
    return ForkSource(
        task=task,
        turn=turn,
        loops=loops,
        finished=frozenset() if turn is None else _finished_names(tx, turn),
        steps=[msgspec.structs.replace(step, result=tx.blobs.open(step.result)) for step in steps],
        ops=tx.lists.ops([task_id]).get(task_id, {}),
        deltas=tx.lists.deltas([task_id]).get(task_id, []),
        values=tx.lists.values([task_id]).get(task_id, {}),
        effects=[_opened(tx, effect) for effect in tx.effects.of_task(task_id)],
        plan=_plan_then(tx, turn, plans[task_id][1] if task_id in plans else None),
        plan_turns={one.turn: one.seq for one in tx.turns.finished(task_id, "plan", limit=100_000)},
        notes=tx.journal.notes([task_id]).get(task_id, []),
        artifacts=tx.journal.artifacts([task_id]).get(task_id, []),
        mail=[msgspec.structs.replace(one, body=tx.blobs.open(one.body)) for one in tx.mail.of_task(task_id)],
        living_children=frozenset(children),
    )


def _opened(tx: Tx, effect: Effect) -> Effect:
    outcome = None if effect.outcome is None else tx.blobs.open(effect.outcome)
    return msgspec.structs.replace(effect, outcome=outcome)


def _find_turn(tx: Tx, task_id: str, at: object, loops: Mapping[str, LoopPosition]) -> FinishedTurn:
    if not isinstance(at, str) or ":" not in at or "/" in at:
        raise BadInput("at", 'name a turn: "turn:12", "LOOP:TURN", "plan:ITEM" or "start"')
    name, _, wanted = at.rpartition(":")
    outside = [path for path in loops if "/" not in path]
    if name == "turn" and "turn" not in loops:
        name = outside[0] if len(outside) == 1 else "turns"
    after = 0
    if wanted.isascii() and wanted.isdigit() and name != "plan":
        after = max(0, int(wanted) - 1)
    while found := tx.turns.finished(task_id, name, after, _PAGE):
        for turn in found:
            if wanted in (turn.turn, str(turn.seq)):
                return turn
        after = found[-1].seq
    shown = ", ".join(f"{path} ({loops[path].turns_done} done)" for path in outside) or "none"
    raise BadInput("at", f"{task_id} has no finished turn {at!r}; its loops: {shown}")


def _plan_then(tx: Tx, turn: FinishedTurn | None, now: Plan | None) -> Plan | None:
    """The plan as it was when that turn had committed: the present one, or one that an earlier turn tells."""
    marks = None if turn is None else turn.marks
    if turn is None or marks is None or not marks.plan:
        return None
    if now is not None and now.shape == marks.plan:
        return now
    for loop, (turns_done, _) in marks.loops.items():
        after = 0
        while after < turns_done and (found := tx.turns.finished(turn.task_id, loop, after, _PAGE)):
            for one in found:
                told = None if one.seq > turns_done else one.marks
                if told is not None and told.items and told.plan == marks.plan:
                    return Plan(items=told.items)
            after = found[-1].seq
    return None


def _finished_names(tx: Tx, until: FinishedTurn) -> frozenset[str]:
    names: set[str] = set()
    after = 0
    while found := tx.turns.finished(until.task_id, until.loop, after, _PAGE):
        names.update(turn.turn for turn in found if turn.seq <= until.seq)
        after = found[-1].seq
        if after >= until.seq:
            break
    return frozenset(names)


# --- cutting


def kept_of(source: ForkSource, sealing: Sealing) -> ForkSeed:
    """The past of a task as it was when that turn had just committed. Raises Refused if it is not known."""
    turn = source.turn
    if turn is None:
        return ForkSeed()
    marks = turn.marks
    if marks is None:
        raise Refused(
            f"turn {turn.turn} of loop {turn.loop} committed when its task ended: nothing comes after it; "
            "fork at an earlier one"
        )
    steps = _kept_steps(source, turn, marks)
    _refuse_living_children(source, steps)
    values = _kept_values(source, turn, marks)
    return ForkSeed(
        loops=_kept_loops(source, turn, marks),
        steps=[(step, pack(step.result, sealing)) for step in steps],
        ops=_kept_ops(source, turn, marks, values),
        deltas=[(delta, pack(delta.items, sealing)) for delta in _kept_deltas(source, marks)],
        values=values,
        plan=_kept_plan(source, marks),
        notes=[note for note in source.notes if note.written_at <= turn.ended_at],
        artifacts=[one for one in source.artifacts if one.recorded_at <= turn.ended_at],
        mail=[(one, pack(one.body, sealing)) for one in source.mail if _was_in_mailbox(one, turn.ended_at)],
    )


def _is_around(path: str, turn: FinishedTurn, marks: TurnMarks) -> bool:
    """Whether a scope or a loop belongs to a loop that the program had left, or finished, before."""
    loop = path.partition("/")[0].partition(":")[0]
    return loop != turn.loop and loop in marks.loops


def _kept_loops(source: ForkSource, turn: FinishedTurn, marks: TurnMarks) -> list[LoopPosition]:
    kept = []
    for path, (turns_done, is_over) in marks.loops.items():
        known = source.loops.get(path)
        if path != turn.loop and known is not None and known.turns_done > turns_done:
            raise Refused(
                f"loop {path} was left in its turn {turns_done + 1} before that, and what happened in it is "
                f"summed up since {source.task.id} has ended; fork at a turn of {path}"
            )
        kept.append(LoopPosition(loop=path, turns_done=turns_done, is_over=is_over))
    inside = [loop for path, loop in source.loops.items() if "/" in path and _is_around(path, turn, marks)]
    return kept + inside


def _kept_steps(source: ForkSource, turn: FinishedTurn, marks: TurnMarks) -> list[Step]:
    outside = [step for step in source.steps if not step.scope and step.ended_at <= turn.ended_at]
    if len(outside) > marks.steps:
        raise Refused(
            f"the clock went backwards while {source.task.id} was running: it is not known which of its "
            "steps outside turns came before that turn; fork at another one, or at the start"
        )
    # Forgiven failures are those of the other task's runs.
    outside = [step for step in outside if step.name != FORGIVEN]
    return outside + [step for step in source.steps if step.scope and _is_around(step.scope, turn, marks)]


def _kept_deltas(source: ForkSource, marks: TurnMarks) -> list[ListDelta]:
    kept = [delta for delta in source.deltas if delta.start + delta.count <= marks.lists.get(delta.name, 0)]
    lengths = {delta.name: delta.start + delta.count for delta in kept}
    if lengths != marks.lists:
        raise Refused(
            f"the lists of {source.task.id} were not made durable turn by turn; fork at another one"
        )
    return kept


def _kept_values(source: ForkSource, turn: FinishedTurn, marks: TurnMarks) -> list[StoredValue]:
    """Only the last one of each value is stored: it must be the one of then."""
    everything = [value for name, value in source.values.items() if name != SPENT]
    early = [value for value in everything if value.written_at <= turn.ended_at]
    for candidates in (everything, early):
        if digest_of_values({value.name: value.value for value in candidates}) == marks.values:
            return candidates
    late = [value.name for value in everything if value not in early] or [one.name for one in everything]
    raise Refused(
        f"value {', '.join(sorted(late))} was changed after turn {turn.turn} of loop {turn.loop}, and only "
        "the last one is stored; fork at a later turn, or at the start"
    )


def _kept_ops(
    source: ForkSource, turn: FinishedTurn, marks: TurnMarks, values: Sequence[StoredValue]
) -> dict[str, bytes]:
    """What was done to lists and values, for the replay: outside turns, and by the turns of each loop."""
    kept = {path: ops for path, ops in source.ops.items() if path and _is_around(path, turn, marks)}
    outside = msgspec.json.decode(source.ops.get("", b"[]"), type=list[msgspec.Raw])
    if outside:
        kept[""] = msgspec.json.encode(outside[: marks.ops])
    last = msgspec.json.decode(source.ops.get(turn.loop, b"{}"), type=Marks)
    known = {value.name: msgspec.Raw(value.value) for value in values if value.name in last.values}
    kept[turn.loop] = msgspec.json.encode(Marks(lists=dict(marks.lists), values=known))
    return kept


def _kept_plan(source: ForkSource, marks: TurnMarks) -> Plan | None:
    """Its items as they were then, with what had been done of them."""
    if not marks.plan and "plan" not in marks.loops:
        return None
    if source.plan is None:
        raise Refused(
            f"the plan of {source.task.id} was changed after that turn, and it is no longer known what it "
            "was then; fork at a later turn, or at the start"
        )
    done, _ = marks.loops.get("plan", (0, False))
    return Plan(
        items=tuple(
            msgspec.structs.replace(item, is_done=source.plan_turns.get(item.id, done + 1) <= done)
            for item in source.plan.items
        )
    )


def _was_in_mailbox(mail: Mail, moment: datetime) -> bool:
    return mail.sent_at <= moment and (mail.taken_at is None or mail.taken_at > moment)


def _refuse_living_children(source: ForkSource, steps: Iterable[Step]) -> None:
    """A child has one parent; a fork that awaited it would never be woken at its end."""
    spawned = {decode_payload(step.result) for step in steps if step.name.startswith("spawn ")}
    living = sorted(child for child in spawned if child in source.living_children)
    if living:
        raise Refused(f"{', '.join(living)}, started before that turn, has not ended; fork when it has")


# --- effects


def is_in_past(source: ForkSource, kept: ForkSeed, effect: Effect) -> bool:
    """Whether the effect belongs to the past that the fork keeps."""
    turn = source.turn
    if turn is None or turn.marks is None:
        return False
    if not effect.scope:
        key = (effect.scope, effect.name, effect.occurrence)
        return any(key == (step.scope, step.name, step.occurrence) for step, _ in kept.steps)
    if effect.scope.startswith("cleanup "):
        return effect.created_at <= turn.ended_at
    loop, _, name = effect.scope.partition("/")[0].partition(":")
    return name in source.finished if loop == turn.loop else loop in turn.marks.loops


def settle_passed(source: ForkSource, passed: Sequence[Effect], way: Effects) -> list[Effect]:
    """Those that have happened after that point. Raises EffectsInTheWay unless the caller said what to do."""
    happened = [effect for effect in passed if effect.status in HAPPENED]
    in_doubt = [effect for effect in passed if effect.status in OPEN or may_have_happened(effect)]
    if way == "acknowledge":
        return happened + in_doubt
    if in_doubt:
        remedy = (
            "the outcome is unknown; settle it first: holdfast reviews resolve; "
            'or, if it raised and is in no review: effects="acknowledge"'
        )
        raise EffectsInTheWay(source.task.id, [_shown(effect) for effect in in_doubt], remedy)
    if happened and way == "refuse":
        remedy = 'say effects="keep", "compensate" or "acknowledge", or fork at a later turn'
        raise EffectsInTheWay(source.task.id, [_shown(effect) for effect in happened], remedy)
    return happened


def _shown(effect: Effect) -> str:
    return f"{effect.name} in {effect.scope or 'the task'} ({effect.id})"


async def undo_effect(effect: Effect, compensate: Compensate, sealing: Sealing) -> None:
    """The newest first. What was undone before a crash is undone again, under the same idempotency key."""
    result = None if effect.outcome is None else decode_payload(effect.outcome)
    with keyed_by(effect.name, f"{effect.idempotency_key}-compensation", sealing):
        answer = compensate(effect, result)
        if inspect.isawaitable(answer):
            await answer


# --- writing


def forking(
    source: ForkSource,
    kept: ForkSeed,
    *,
    at: str,
    way: Effects,
    passed: Sequence[Effect],
    key: str | None,
    now: datetime,
) -> Write[Task]:
    """The write that makes the new task with its past. The same key again gives the first task."""
    old = source.task
    new = NewTask(
        name=old.name,
        goal=old.goal,
        owner=old.owner,
        arguments=decode_payload(old.arguments),
        runtime=old.runtime,
        origin=old.origin,
        session_key=old.session_key,
        key=key,
        notify=old.notify,
        priority=old.priority,
    )
    task, run = prepare(new, now)
    # With fence 0 its first claim would look like that of a new task, whose journal is empty.
    run = msgspec.structs.replace(run, fence=1)

    def fork_it(tx: Tx) -> Task:
        found, is_new = create_prepared(tx, task, run, now)
        if not is_new:
            return found
        _put(tx, task, run.id, source, kept, now)
        tx.emit(
            EventKind.TASK_FORKED,
            task.id,
            at=now,
            task_id=task.id,
            source=old.id,
            place=at,
            effects=way,
            passed=[effect.id for effect in passed],
        )
        return found

    return fork_it


def _put(tx: Tx, task: Task, run_id: str, source: ForkSource, kept: ForkSeed, now: datetime) -> None:
    for loop in kept.loops:
        tx.fork_history.put_loop(task.id, loop, now)
        tx.fork_history.copy_turns(source.task.id, task.id, loop.loop, up_to=loop.turns_done)
    for step, packed in kept.steps:
        stored = tx.blobs.keep(task.id, packed)
        tx.journal.put_step(msgspec.structs.replace(step, task_id=task.id, result=stored))
    for path, ops in kept.ops.items():
        tx.lists.set_ops(task.id, path, ops)
    for delta, packed in kept.deltas:
        tx.lists.append(msgspec.structs.replace(delta, task_id=task.id), packed)
    for value in kept.values:
        tx.lists.set_value(msgspec.structs.replace(value, task_id=task.id))
    if kept.plan is not None:
        tx.fork_history.put_plan(task.id, run_id, kept.plan, now)
    tx.fork_history.put_notes(task.id, run_id, kept.notes)
    for artifact in kept.artifacts:
        tx.fork_history.put_artifact(task.id, run_id, artifact)
    for mail, packed in kept.mail:
        body = tx.blobs.keep(task.id, packed)
        tx.mail.send(task.id, topic=mail.topic, body=body, sender=mail.sender, key=mail.key, now=mail.sent_at)
