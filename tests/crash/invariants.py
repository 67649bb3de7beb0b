"""What must be true of every ledger, whatever happened to the processes that wrote it.

Each check reads like the sentence it stands for. They look at the rows and at nothing that the engine derives
from them, so that a mistake there cannot excuse itself.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

import msgspec

from holdfast.core.checkpoint import Checkpoint
from holdfast.core.effect import Effect
from holdfast.core.events import Event, EventKind
from holdfast.core.program_records import FinishedTurn, ListDelta, LoopPosition, Mail, Question
from holdfast.core.run import TASK_STATUS_OF, Queue, RunRecord
from holdfast.core.schedule import Wake
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.core.transitions import (
    TASK_REOPENS,
    CheckpointStatus,
    EffectStatus,
    RunStatus,
    TaskStatus,
    WakeStatus,
    is_terminal,
)
from holdfast.engine.claims.claims import NEVER
from holdfast.store import Store, Tx
from holdfast.store.contract import Row
from holdfast.store.events import START, parse_position
from holdfast.store.rows.effects import effect_from_row
from holdfast.store.rows.flows import flow_from_row, flow_node_from_row
from holdfast.store.rows.gateway import wake_from_row
from holdfast.store.rows.journal import (
    delta_from_row,
    loop_from_row,
    mail_from_row,
    question_from_row,
    turn_from_row,
)
from holdfast.store.rows.recorded import recorded_from_row
from holdfast.store.rows.work import checkpoint_from_row, run_from_row, task_from_row
from holdfast.store.sealing import LedgerKey, Sealing
from holdfast.store.verify import scan
from tests.engine.tables import query

T = TypeVar("T")

_PAUSED = {RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING}
_OPEN = {CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING}
_CONTINUED = {RunStatus.RESUMED, RunStatus.FAILED_RESUME}
_HAPPENED = {EffectStatus.DONE, EffectStatus.CONFIRMED}
# How long the feed of a server may lag behind its tables.
PATIENCE_S = 30.0


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a ledger says, at one moment."""

    tasks: dict[str, Task]
    runs: dict[str, RunRecord]
    checkpoints: dict[str, Checkpoint]
    wakes: dict[str, Wake]
    steps: list[Step]
    events: list[Event]
    counts: dict[str, dict[str, int]]
    living_boots: set[str]
    effects: dict[str, Effect]
    turns: list[FinishedTurn]
    # These by task and path.
    loops: dict[tuple[str, str], LoopPosition]
    open_scopes: set[tuple[str, str]]
    finished_scopes: set[tuple[str, str]]
    deltas: list[ListDelta]
    mail: list[Mail]
    questions: dict[str, Question]
    # The recorded tasks whose last sign of life counts until some time.
    signs_of_life: set[str]
    # Of the ledger; None when nothing in it is sealed.
    key: LedgerKey | None

    def runs_of(self, task_id: str) -> list[RunRecord]:
        return sorted((r for r in self.runs.values() if r.task_id == task_id), key=lambda run: run.number)

    def is_committed(self, task_id: str, scope: str) -> bool:
        """Whether the turn that a scope is, or one around it, has become data."""
        parts = scope.split("/")
        around = ("/".join(parts[: place + 1]) for place in range(len(parts)))
        return any((task_id, path) in self.finished_scopes for path in around)


def contents_of(store: Store) -> Contents:
    return store.read_now(_read)


def _read(tx: Tx) -> Contents:
    def every(noun: str, width: int, read: Callable[[Row], T]) -> list[T]:
        return [read(row) for row in scan(tx, noun, width)]

    def opened(noun: str, width: int, read: Callable[[Row, Sealing], T]) -> list[T]:
        return [read(row, tx.sealing) for row in scan(tx, noun, width)]

    turns = opened("turns", 3, turn_from_row)
    return Contents(
        tasks={task.id: task for task in opened("tasks", 1, task_from_row)},
        runs={run.id: run for run in every("runs", 1, run_from_row)},
        checkpoints={one.id: one for one in every("checkpoints", 1, checkpoint_from_row)},
        wakes={one.id: one for one in every("wakes", 1, wake_from_row)},
        # The rows of steps, and the effects that are their own steps.
        steps=[step for row in scan(tx, "tasks", 1) for step in tx.journal.steps(row[0])],
        events=_feed(tx),
        counts={noun: tx.events.counts(noun) for noun in ("task", "run", "checkpoint")},
        living_boots={boot.id for boot in tx.boots.alive(limit=100_000)},
        effects={effect.id: effect for effect in opened("effects", 6, effect_from_row)},
        turns=turns,
        loops={(row[0], row[1]): loop_from_row(row) for row in scan(tx, "loops", 2)},
        open_scopes={(row[0], row[1]) for row in scan(tx, "scope_ops", 2)},
        finished_scopes={(turn.task_id, f"{turn.loop}:{turn.turn}") for turn in turns},
        deltas=[
            msgspec.structs.replace(delta, items=tx.blobs.open(delta.items))
            for delta in opened("list_deltas", 3, delta_from_row)
        ],
        mail=opened("mail", 2, mail_from_row),
        signs_of_life={
            one.task_id for one in opened("recorded_tasks", 1, recorded_from_row) if one.alive_until
        },
        key=tx.sealing.vault.find(tx),
        questions={one.id: one for one in opened("questions", 1, question_from_row)},
    )


def _feed(tx: Tx) -> list[Event]:
    feed: list[Event] = []
    while page := tx.events.after(feed[-1].position if feed else START, limit=1000):
        feed += page
    return feed


def settled_contents(store: Store) -> Contents:
    """Everything, once the feed has told all of it.

    A server keeps events back while any transaction of any of its databases is open, so that no follower
    misses one: an autovacuum beside the test is enough.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        [(events,)] = query(store, "SELECT COUNT(*) FROM ledger_events")
        contents = contents_of(store)
        if len(contents.events) >= events or time.monotonic() > give_up_at:
            return contents
        time.sleep(0.05)


def assert_ledger_is_whole(store: Store, *, is_at_rest: bool = False) -> Contents:
    """Nothing doubled, nothing stuck, nothing damaged; at rest: nothing left to do, either."""
    assert store.verify() == []
    contents = settled_contents(store)
    assert_every_task_has_one_unbroken_line_of_runs(contents)
    assert_every_interruption_has_at_most_one_follow_up(contents)
    assert_every_paused_run_is_paused_by_one_checkpoint(contents)
    assert_tasks_show_what_their_last_run_shows(contents)
    assert_every_wake_has_a_task_that_waits_for_it(contents)
    assert_nothing_is_stuck(contents)
    assert_every_step_was_saved_by_a_run_of_its_task(contents)
    assert_an_effect_is_tried_again_only_after_it_failed_for_certain(contents)
    assert_no_task_ends_with_an_effect_in_the_air(contents)
    assert_what_happened_is_remembered(contents)
    assert_every_loop_has_each_of_its_turns_once(contents)
    assert_finished_turns_have_left_nothing_open(contents)
    assert_every_list_is_one_unbroken_chain(contents)
    assert_mail_is_taken_once_and_in_order(contents)
    assert_every_success_has_waited_for_its_children(contents)
    assert_counts_are_what_a_scan_finds(contents)
    assert_events_tell_the_story_in_order(contents)
    assert_every_flow_is_as_its_tasks_are(store, contents)
    if is_at_rest:
        assert_everything_has_ended(contents)
    return contents


def assert_every_flow_is_as_its_tasks_are(store: Store, contents: Contents) -> None:
    """A live flow says what it waits for; it counts its live tasks; each of its nodes has its own task."""
    flows = store.read_now(lambda tx: [flow_from_row(row, tx.sealing) for row in scan(tx, "flows", 1)])
    nodes = store.read_now(
        lambda tx: [flow_node_from_row(row, tx.sealing) for row in scan(tx, "flow_nodes", 2)]
    )
    tasks = [task for task in contents.tasks.values() if task.flow_id is not None]
    for flow in flows:
        mine = [task for task in tasks if task.flow_id == flow.id]
        assert flow.live == sum(not task.has_ended for task in mine), flow
        assert (flow.waits_on is None) is flow.has_ended, flow
        assert not (flow.has_ended and flow.live), flow
        if flow.has_nodes:
            started = [node.task_id for node in nodes if node.flow_id == flow.id and node.task_id is not None]
            assert sorted(started) == sorted(task.id for task in mine), flow


def assert_every_task_has_one_unbroken_line_of_runs(contents: Contents) -> None:
    lines = _by_task(contents.runs.values())
    assert lines.keys() == contents.tasks.keys()
    retried = {event.subject_id for event in contents.events if event.kind is EventKind.RUN_RETRIED}
    reopened = {
        event.facts.get("run_id") for event in contents.events if event.kind is EventKind.TASK_REOPENED
    }
    for line in lines.values():
        line.sort(key=lambda run: run.number)
        assert [run.number for run in line] == list(range(1, len(line) + 1))
        assert line[0].resumes_run_id is None
        for before, after in pairwise(line):
            assert after.resumes_run_id == before.id
            is_next_attempt = before.status is RunStatus.FAILED and before.id in retried
            assert is_next_attempt or after.id in reopened or before.status in _CONTINUED, (
                f"{before.id} is {before.status} and was followed up"
            )


def assert_every_interruption_has_at_most_one_follow_up(contents: Contents) -> None:
    followed = Counter(run.resumes_run_id for run in contents.runs.values() if run.resumes_run_id)
    assert all(times == 1 for times in followed.values())
    for checkpoint in contents.checkpoints.values():
        if checkpoint.status is CheckpointStatus.RESUMED:
            assert checkpoint.resumed_run_id is not None
            follow_up = contents.runs[checkpoint.resumed_run_id]
            assert follow_up.resumes_run_id == checkpoint.run_id
            assert follow_up.checkpoint_id == checkpoint.id
            assert contents.runs[checkpoint.run_id].status is RunStatus.RESUMED
        else:
            assert checkpoint.resumed_run_id is None
    for run in contents.runs.values():
        if run.status is RunStatus.RESUMED:
            assert followed[run.id] == 1, f"{run.id} is resumed and nothing continues it"


def assert_every_paused_run_is_paused_by_one_checkpoint(contents: Contents) -> None:
    by_run = Counter(one.run_id for one in contents.checkpoints.values() if one.status in _OPEN)
    paused = {run.id: run for run in contents.runs.values() if run.status in _PAUSED}
    assert by_run == Counter(dict.fromkeys(paused, 1))
    for one in contents.checkpoints.values():
        if one.status in _OPEN:
            assert paused[one.run_id].status.value == str(one.status)
        if one.status is CheckpointStatus.FAILED_RESUME:
            assert one.diagnostic is not None, f"{one.id} failed and does not say why"
            assert contents.runs[one.run_id].status in {RunStatus.FAILED_RESUME, RunStatus.CANCELLED}


def assert_tasks_show_what_their_last_run_shows(contents: Contents) -> None:
    lines = _by_task(contents.runs.values())
    saved = {one.run_id for one in contents.checkpoints.values() if _waits_for_wake(one)}
    for task in contents.tasks.values():
        last = max(lines[task.id], key=lambda run: run.number)
        status = TaskStatus.WAITING if last.id in saved else _status_shown(last)
        assert task.status is status, f"{task.id} is {task.status}, {last.id} {last.status}"
        assert (task.result is not None) == (task.status is TaskStatus.SUCCEEDED)
        assert (task.cleanup_after is not None) == task.has_ended


def _waits_for_wake(checkpoint: Checkpoint) -> bool:
    return checkpoint.wake_id is not None and checkpoint.status is CheckpointStatus.PAUSED_FOR_RESTART


def assert_every_wake_has_a_task_that_waits_for_it(contents: Contents) -> None:
    waiting = {one.wake_id for one in contents.checkpoints.values() if _waits_for_wake(one)}
    pending = {one.id for one in contents.wakes.values() if one.status is WakeStatus.PENDING}
    assert waiting == pending, "a task waits for a wake that never fires, or a wake is left over"


def _status_shown(run: RunRecord) -> TaskStatus:
    is_reviewed = run.status is RunStatus.WAITING and (run.waits_on or "").startswith("review:")
    return TaskStatus.NEEDS_REVIEW if is_reviewed else TASK_STATUS_OF[run.status]


def assert_nothing_is_stuck(contents: Contents) -> None:
    """Every record that has not ended names a living owner, a due time or a waker."""
    for run in contents.runs.values():
        match run.status:
            case RunStatus.RUNNING if (run.claimed_by or "").startswith("producer:"):
                # No process of Holdfast carries it: after that time upkeep asks its runtime.
                assert run.task_id in contents.signs_of_life, f"{run.id} may be silent for ever"
            case RunStatus.RUNNING:
                assert run.claimed_by in contents.living_boots, (
                    f"{run.id} is carried by the dead {run.claimed_by}"
                )
                assert run.lease_until is not None
            case RunStatus.QUEUED:
                assert run.queue in {Queue.READY, Queue.LATER, Queue.PRODUCER}
                assert run.claimed_by is None
            case RunStatus.WAITING:
                assert_something_will_wake(run, contents)
            case RunStatus.RESUMING:
                (checkpoint,) = (
                    one
                    for one in contents.checkpoints.values()
                    if one.run_id == run.id and one.status is CheckpointStatus.RESUMING
                )
                assert checkpoint.claimed_by in contents.living_boots
                assert checkpoint.lease_until is not None
            case RunStatus.PAUSED_FOR_RESTART:
                pass  # its checkpoint is its waker: see above
            case _:
                assert is_terminal(run.status)


def assert_something_will_wake(run: RunRecord, contents: Contents) -> None:
    """What a run waits for can still come; what has come already would have woken it."""
    assert run.waits_on
    what, _, name = run.waits_on.partition(":")
    match what:
        case "review":
            assert contents.effects[name].status is EffectStatus.UNKNOWN
            assert contents.effects[name].task_id == run.task_id
        case "answer":
            assert contents.questions[name].answered_at is None
            assert contents.questions[name].task_id == run.task_id
        case "child":
            assert not contents.tasks[name].has_ended
        case "children":
            children = [one for one in contents.tasks.values() if one.parent_task_id == run.task_id]
            assert any(not child.has_ended for child in children), f"{run.id} waits for no child"
        case "mail":
            waiting = [one for one in contents.mail if (one.task_id, one.topic) == (run.task_id, name)]
            assert all(mail.taken_at is not None for mail in waiting), f"{run.id} has not seen its mail"
        case "sleep":
            assert run.due_at < NEVER, f"{run.id} sleeps for ever"


def assert_everything_has_ended(contents: Contents) -> None:
    left = [f"{task.id} is {task.status}" for task in contents.tasks.values() if not task.has_ended]
    left += [f"{run.id} is {run.status}" for run in contents.runs.values() if not run.has_ended]
    left += [f"{one.id} is {one.status}" for one in contents.checkpoints.values() if one.status in _OPEN]
    assert left == []


def assert_every_step_was_saved_by_a_run_of_its_task(contents: Contents) -> None:
    keys = Counter((step.task_id, step.scope, step.name, step.occurrence) for step in contents.steps)
    assert all(times == 1 for times in keys.values())
    for step in contents.steps:
        assert contents.runs[step.run_id].task_id == step.task_id


def assert_an_effect_is_tried_again_only_after_it_failed_for_certain(contents: Contents) -> None:
    lines: dict[tuple[str, str, str, str], list[Effect]] = defaultdict(list)
    for effect in contents.effects.values():
        lines[effect.task_id, effect.scope, effect.name, effect.occurrence].append(effect)
    for key, line in lines.items():
        line.sort(key=lambda effect: effect.generation)
        assert [effect.generation for effect in line] == list(range(1, len(line) + 1)), key
        for before in line[:-1]:
            assert before.status is EffectStatus.FAILED, f"{key} was done again while {before.status}"


def assert_no_task_ends_with_an_effect_in_the_air(contents: Contents) -> None:
    """An intent stays open while its claim lives, or when that claim died; its holder never ends so."""
    for effect in contents.effects.values():
        run = contents.runs[effect.run_id]
        assert run.task_id == effect.task_id
        if effect.status is EffectStatus.INTENT and run.fence == effect.fence:
            assert not run.has_ended, f"{run.id} is {run.status} and left {effect.id} behind"
        if effect.review is not None:
            assert effect.status in {EffectStatus.CONFIRMED, EffectStatus.FAILED}


def assert_what_happened_is_remembered(contents: Contents) -> None:
    """The outcome of an effect and the step that remembers it are one write, and so is the turn around it."""
    remembered = {(step.task_id, step.scope, step.name, step.occurrence) for step in contents.steps}
    for effect in contents.effects.values():
        if effect.status in _HAPPENED:
            key = (effect.task_id, effect.scope, effect.name, effect.occurrence)
            assert key in remembered or contents.is_committed(effect.task_id, effect.scope), (
                f"{effect.id} is {effect.status} and no step remembers it"
            )


def assert_every_loop_has_each_of_its_turns_once(contents: Contents) -> None:
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for turn in contents.turns:
        numbers[turn.task_id, turn.loop].append(turn.seq)
    done = {key: loop.turns_done for key, loop in contents.loops.items() if loop.turns_done}
    assert numbers.keys() >= done.keys()
    for key, found in numbers.items():
        # A loop inside a turn is forgotten with that turn; its own turns stay, for people to look at.
        assert key in done or contents.is_committed(*key), f"{key} has turns, and neither a loop nor an end"
        wanted = done.get(key, len(found))
        assert sorted(found) == list(range(1, wanted + 1)), f"{key} has the turns {found}"
    names = Counter((turn.task_id, turn.loop, turn.turn) for turn in contents.turns)
    assert all(times == 1 for times in names.values())


def assert_finished_turns_have_left_nothing_open(contents: Contents) -> None:
    steps = {(step.task_id, step.scope) for step in contents.steps if step.scope}
    inner = {(task_id, path) for task_id, path in contents.loops if "/" in path}
    for task_id, scope in steps | inner | {one for one in contents.open_scopes if one[1]}:
        assert not contents.is_committed(task_id, scope), f"{scope} of {task_id} is over and not forgotten"


def assert_every_list_is_one_unbroken_chain(contents: Contents) -> None:
    lists: dict[tuple[str, str], list[ListDelta]] = defaultdict(list)
    for delta in contents.deltas:
        lists[delta.task_id, delta.name].append(delta)
    for key, deltas in lists.items():
        length, chain = 0, bytes(16)
        for delta in sorted(deltas, key=lambda one: one.start):
            assert delta.start == length, f"{key} has a gap or an overlap at {delta.start}"
            for item in _items_of(delta):
                chain = hashlib.blake2b(chain + item, digest_size=16).digest()
                length += 1
            assert delta.start + delta.count == length
            # In a ledger that has a key, what tells about plaintext is keyed.
            assert delta.chain in (chain, contents.key and contents.key.conceal(chain))
            assert contents.runs[delta.run_id].task_id == delta.task_id


def _items_of(delta: ListDelta) -> Iterator[bytes]:
    for raw in msgspec.json.decode(delta.items, type=list[msgspec.Raw]):
        yield bytes(raw)


def assert_mail_is_taken_once_and_in_order(contents: Contents) -> None:
    boxes: dict[tuple[str, str], list[Mail]] = defaultdict(list)
    for mail in sorted(contents.mail, key=lambda one: one.seq):
        boxes[mail.task_id, mail.topic].append(mail)
    for box in boxes.values():
        are_taken = [mail.taken_at is not None for mail in box]
        assert are_taken == sorted(are_taken, reverse=True), f"mail of {box[0].task_id} was taken out of turn"


def assert_every_success_has_waited_for_its_children(contents: Contents) -> None:
    for child in contents.tasks.values():
        parent = contents.tasks.get(child.parent_task_id or "")
        if parent is not None and parent.status is TaskStatus.SUCCEEDED:
            assert child.has_ended, f"{child.id} is {child.status}, and its parent has succeeded"


def assert_counts_are_what_a_scan_finds(contents: Contents) -> None:
    scanned = {
        "task": Counter(str(task.status) for task in contents.tasks.values()),
        "run": Counter(str(run.status) for run in contents.runs.values()),
        "checkpoint": Counter(str(one.status) for one in contents.checkpoints.values() if one.status),
    }
    assert contents.counts == scanned


def assert_events_tell_the_story_in_order(contents: Contents) -> None:
    """The feed only rises, and a listener that hears all of it in its order arrives at the ledger.

    (On a server the feed itself is in the order in which transactions began: what one of them saw of another
    may be told before it. Places are given when things happen.)
    """
    places = [parse_position(event.position) for event in contents.events]
    assert places == sorted(set(places)), next(pair for pair in pairwise(places) if pair[0] >= pair[1])
    story = Story()
    for event in sorted(contents.events, key=lambda event: parse_position(event.position)[1]):
        story.hear(event)
    assert story.tasks == {task.id: task.status for task in contents.tasks.values()}
    assert story.runs == {run.id: run.status for run in contents.runs.values() if run.id in story.runs}
    told = story.checkpoints
    assert told == {one.id: one.status for one in contents.checkpoints.values() if one.status}


class Story:
    """The statuses of all records as the feed alone tells them; a move that is not allowed is a lie."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskStatus] = {}
        # Runs appear with their first claim or pause: that a run was created has no event of its own.
        self.runs: dict[str, RunStatus] = {}
        self.checkpoints: dict[str, CheckpointStatus] = {}
        self._fences: dict[str, int] = {}
        self._run_of: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        subject, task = event.subject_id, event.task_id or ""
        match event.kind:
            case EventKind.TASK_CREATED:
                assert subject not in self.tasks
                self.tasks[subject] = TaskStatus.QUEUED
            case EventKind.TASK_ENDED:
                assert not is_terminal(self.tasks[subject]), f"{subject} ended twice"
                self.tasks[subject] = TaskStatus(str(event.facts["status"]))
            case EventKind.TASK_REOPENED if "run_id" in event.facts:
                assert TaskStatus.QUEUED in TASK_REOPENS[self.tasks[subject]]
                self.tasks[subject] = TaskStatus.QUEUED
            case EventKind.TASK_REOPENED:
                assert self.tasks[subject] is TaskStatus.FAILED
                self.tasks[subject] = TaskStatus.PAUSED
                checkpoint = str(event.facts["checkpoint_id"])
                self.checkpoints[checkpoint] = CheckpointStatus.PAUSED_FOR_RESTART
            case EventKind.RUN_CLAIMED:
                assert self.tasks[task] in {TaskStatus.QUEUED, TaskStatus.WAITING}
                assert self.runs.get(subject, RunStatus.QUEUED) in {RunStatus.QUEUED, RunStatus.WAITING}
                fence = int(str(event.facts["fence"]))
                assert fence > self._fences.get(subject, 0), f"{subject} was claimed twice with fence {fence}"
                self._fences[subject] = fence
                self.runs[subject], self.tasks[task] = RunStatus.RUNNING, TaskStatus.RUNNING
            case EventKind.RUN_RELEASED | EventKind.RUN_WOKEN:
                expected = RunStatus.RUNNING if event.kind is EventKind.RUN_RELEASED else RunStatus.WAITING
                assert self.runs[subject] is expected
                self.runs[subject], self.tasks[task] = RunStatus.QUEUED, TaskStatus.QUEUED
            case EventKind.RUN_WAITED:
                assert self.runs[subject] is RunStatus.RUNNING
                is_reviewed = str(event.facts.get("waits_on", "")).startswith("review:")
                shown = TaskStatus.NEEDS_REVIEW if is_reviewed else TaskStatus.WAITING
                self.runs[subject], self.tasks[task] = RunStatus.WAITING, shown
            case EventKind.RUN_RETRIED:
                assert self.runs[subject] is RunStatus.RUNNING
                self.runs[subject], self.tasks[task] = RunStatus.FAILED, TaskStatus.QUEUED
            case EventKind.RUN_PAUSED:
                assert self.runs[subject] is RunStatus.RUNNING
                self.runs[subject], self.tasks[task] = RunStatus.PAUSED_FOR_RESTART, TaskStatus.PAUSED
                checkpoint = str(event.facts["checkpoint_id"])
                assert checkpoint not in self.checkpoints
                self.checkpoints[checkpoint] = CheckpointStatus.PAUSED_FOR_RESTART
                self._run_of[checkpoint] = subject
            case EventKind.WAKE_SCHEDULED:
                assert self.tasks[task] is TaskStatus.PAUSED
                self.tasks[task] = TaskStatus.WAITING
            case EventKind.WAKE_FIRED if event.facts["is_needed"]:
                assert self.tasks[task] is TaskStatus.WAITING
                self.tasks[task] = TaskStatus.PAUSED
            case EventKind.RUN_ENDED:
                assert not is_terminal(self.runs.get(subject, RunStatus.QUEUED)), f"{subject} ended twice"
                self.runs[subject] = RunStatus(str(event.facts["status"]))
            case EventKind.CHECKPOINT_CLAIMED:
                self._move(subject, CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING)
            case EventKind.CHECKPOINT_RETURNED:
                self._move(subject, CheckpointStatus.RESUMING, CheckpointStatus.PAUSED_FOR_RESTART)
            case EventKind.CHECKPOINT_RESUMED:
                self._move(subject, CheckpointStatus.RESUMING, CheckpointStatus.RESUMED)
                follow_up = str(event.facts["run_id"])
                assert follow_up not in self.runs
                self.runs[follow_up], self.tasks[task] = RunStatus.QUEUED, TaskStatus.QUEUED
            case EventKind.CHECKPOINT_FAILED:
                assert self.checkpoints[subject] in _OPEN
                self.checkpoints[subject] = CheckpointStatus.FAILED_RESUME
            case _:
                pass  # boots, cancels asked for, updates ignored: they move nothing

    def _move(self, checkpoint_id: str, status: CheckpointStatus, to: CheckpointStatus) -> None:
        assert self.checkpoints[checkpoint_id] is status, f"{checkpoint_id} was told to go to {to}"
        self.checkpoints[checkpoint_id] = to
        run_id = self._run_of.get(checkpoint_id)
        if run_id is not None:
            self.runs[run_id] = RunStatus(to.value)


def _by_task(runs: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    lines: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        lines[run.task_id].append(run)
    return lines
