"""Sealed values: bound to their place, opened by one key only, the same when a write runs twice."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import CannotSeal, KeyLost, KeyMissing, KeyWrong, RowDamaged
from holdfast.core.flow import FlowNode
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.program_records import TurnMarks
from holdfast.core.seal_mode import SEALED, SealMode
from holdfast.store import Store, Tx
from holdfast.store.blobs import pack
from holdfast.store.journal import saving_step
from holdfast.store.rows import conversation, effects, flows, journal, work
from holdfast.store.sealing import (
    FACT,
    MARK,
    LedgerKey,
    MemoryKey,
    NoKey,
    Sealing,
    Vault,
    WrappedKey,
    fingerprint,
    unwrap,
    wrap,
)
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock, RepeatingStore, contents_of
from tests.backends import first_on_both
from tests.builders import (
    START,
    a_delivery,
    a_flow,
    a_flow_node,
    a_message,
    a_run,
    a_step,
    a_task,
    an_effect,
    running_run,
)
from tests.shared_ledgers import SharedLedger
from tests.store import test_twice
from tests.store.program_records import a_delta, a_question, a_turn, a_value, large, send

SECRET = msgspec.json.encode({"password": "behind the " + "third stone"})
OTHER = msgspec.json.encode({"password": "under the " + "red boat"})
PLAIN = b'{"tides":"high"}'
OUTER = b"o" * 32


# --- the seal itself


def test_what_was_sealed_opens_in_its_place() -> None:
    key = LedgerKey.new()

    assert key.open(key.seal(SECRET, ("a", "b")), ("a", "b")) == SECRET


@pytest.mark.parametrize("place", [("a", "c"), ("a",), ("ab",), ("a", "b", ""), ("a", "b", "c"), ()])
def test_what_was_sealed_does_not_open_in_another_place(place: tuple[str, ...]) -> None:
    key = LedgerKey.new()

    assert key.open(key.seal(SECRET, ("a", "b")), place) is None


def test_what_was_sealed_does_not_open_when_a_bit_of_it_has_changed() -> None:
    key = LedgerKey.new()
    sealed = key.seal(SECRET, ("a",))

    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1 << place % 8
        assert place == 0 or key.open(bytes(changed), ("a",)) is None
    for length in range(len(sealed)):
        assert key.open(sealed[:length], ("a",)) is None


def test_what_was_sealed_does_not_open_with_another_key() -> None:
    assert LedgerKey.new().open(LedgerKey.new().seal(SECRET, ("a",)), ("a",)) is None


def test_the_same_value_in_the_same_place_is_sealed_to_the_same_bytes_and_in_no_other() -> None:
    key = LedgerKey.new()

    assert key.seal(SECRET, ("a",)) == key.seal(SECRET, ("a",))
    assert len({key.seal(SECRET, ("a",)), key.seal(SECRET, ("b",)), key.seal(OTHER, ("a",))}) == 3
    # A nonce that two places shared would show that they hold the same.
    assert key.seal(SECRET, ("a",))[5:29] != key.seal(SECRET, ("b",))[5:29]


def test_the_ledgers_key_is_unwrapped_by_the_outer_key_that_wrapped_it_only() -> None:
    key = LedgerKey.new()
    wrapped = wrap(key, OUTER)

    assert unwrap(wrapped, OUTER, NoKey()).raw == key.raw
    with pytest.raises(KeyMissing, match=rf"{fingerprint(OUTER)} .*is not in this place"):
        unwrap(wrapped, None, NoKey())
    with pytest.raises(KeyWrong, match=fingerprint(OUTER)):
        unwrap(wrapped, b"x" * 32, NoKey())


def test_a_damaged_wrapped_key_is_told_and_never_opened() -> None:
    wrapped = wrap(LedgerKey.new(), OUTER)
    sealed = base64.b64decode(wrapped.wrapped)
    changed = [
        sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :] for place in range(1, len(sealed))
    ]
    damaged = [{"wrapped": base64.b64encode(one).decode()} for one in (b"", sealed[:-1], *changed)]

    for fields in ({"id": "00000000"}, {"wrapped": "no base64!"}, *damaged):
        with pytest.raises(KeyWrong, match="is damaged"):
            unwrap(msgspec.structs.replace(wrapped, **fields), OUTER, NoKey())
    for fields in ({"outer": "../../x"}, {"outer": "a\0b"}, {"outer": "a" * 5000}, {"id": "/"}):
        with pytest.raises(KeyWrong, match="is damaged"):
            WrappedKey.read(msgspec.structs.replace(wrapped, **fields).write())
    with pytest.raises(KeyWrong, match="is damaged"):
        WrappedKey.read("{")


# --- rows


class Planted(Sealing):
    """Writes rows with bytes that were sealed elsewhere, and with the digest that belongs to them: as a thief
    does who may write to the database and has no key."""

    __slots__ = ("bytes",)

    def __init__(self, stolen: bytes) -> None:
        super().__init__(Vault(NoKey()))
        self.bytes = stolen

    def seal(self, plain: bytes, *place: str, of_secret: bool = False) -> bytes:  # noqa: ARG002 - everywhere
        return self.bytes

    def seal_beside(self, plain: bytes, *place: str) -> bytes:  # noqa: ARG002 - the same
        return self.bytes


Row = list[Any]


class SealedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of record that holds values of programs."""

    write: Callable[[bytes, Sealing], Row]
    read: Callable[[Row, Sealing], Any]
    # The values in it.
    values: Callable[[Any], list[Any]]
    columns: tuple[int, ...]


def cells(row: dict[str, Any], *order: str) -> Row:
    return [row[name] for name in order] if order else list(row.values())


_TASK = a_task()
_RUN = a_run(_TASK)
_EFFECT_ORDER = (
    *effects.INTENT_COLUMNS[:12],
    *(
        "status",
        "fence",
        "outcome",
        "outcome_digest",
        "review",
        "review_digest",
        "settle_after",
        "updated_at",
    ),
)
_PLAN = Plan(items=(PlanItem(id="a", title=SECRET.decode()),))
_MARKS = TurnMarks(items=_PLAN.items)


def _sent(value: bytes) -> Any:
    from holdfast.core.program_records import Mail

    return Mail(task_id=_TASK.id, seq=1, topic="t", body=value, sender="ada", key="k", sent_at=START)


KINDS = {
    "task": SealedColumn(
        write=lambda value, sealing: cells(
            work.row_from_task(msgspec.structs.replace(_TASK, arguments=value, result=value), sealing)
        ),
        read=lambda row, sealing: work.task_from_row(row, sealing).checked(),
        values=lambda task: [task.arguments, task.result],
        columns=(5, 18),
    ),
    "step": SealedColumn(
        write=lambda value, sealing: list(journal.row_from_step(a_step(_RUN, result=value), sealing)),
        read=journal.step_from_row,
        values=lambda step: [step.result],
        columns=(7,),
    ),
    "plan": SealedColumn(
        write=lambda _, sealing: cells(journal.row_from_plan(_TASK.id, _RUN.id, _PLAN, START, sealing)),
        read=journal.plan_from_row,
        values=lambda plan: [msgspec.json.decode(plan.items[0].title)],
        columns=(2,),
    ),
    "turn": SealedColumn(
        write=lambda _, sealing: cells(
            journal.row_from_turn(
                a_turn(_RUN, steps=(journal_summary(SECRET.decode()),), marks=_MARKS), sealing
            )
        ),
        read=journal.turn_from_row,
        values=lambda turn: [turn.steps[0].preview, turn.marks.items[0].title] if turn.steps else [SEALED],
        columns=(5, 10),
    ),
    "list delta": SealedColumn(
        write=lambda value, sealing: cells(journal.row_from_delta(a_delta(_RUN, items=value), sealing)),
        read=journal.delta_from_row,
        values=lambda delta: [delta.items],
        columns=(4,),
    ),
    "value": SealedColumn(
        write=lambda value, sealing: cells(journal.row_from_value(a_value(_RUN, value=value), sealing)),
        read=journal.value_from_row,
        values=lambda stored: [stored.value],
        columns=(2,),
    ),
    "operations": SealedColumn(
        write=lambda value, sealing: cells(journal.row_from_ops(_TASK.id, "main:1", value, sealing)),
        read=journal.ops_from_row,
        values=lambda found: [found[1]],
        columns=(2,),
    ),
    "mail": SealedColumn(
        write=lambda value, sealing: cells(journal.row_from_mail(_sent(value), sealing)),
        read=journal.mail_from_row,
        values=lambda mail: [mail.body],
        columns=(3,),
    ),
    "question": SealedColumn(
        write=lambda value, sealing: cells(
            journal.row_from_question(
                a_question(_RUN, id="q_1", choices=(value.decode(),), default_answer=value, answer=value),
                sealing,
            )
        ),
        read=journal.question_from_row,
        values=lambda question: [question.default_answer, question.answer],
        columns=(4, 5, 10),
    ),
    "effect": SealedColumn(
        write=lambda value, sealing: cells(
            effects.row_from_effect(an_effect(id="eff_1", request=value, outcome=value), sealing),
            *_EFFECT_ORDER,
        ),
        read=effects.effect_from_row,
        values=lambda effect: [effect.request, effect.outcome],
        columns=(9, 14),
    ),
    "delivery": SealedColumn(
        write=lambda value, sealing: cells(
            conversation.row_from_delivery(a_delivery(id="dlv_1", message=value), sealing)
        ),
        read=conversation.delivery_from_row,
        values=lambda delivery: [delivery.message],
        columns=(5,),
    ),
    "flow": SealedColumn(
        write=lambda value, sealing: cells(
            flows.row_from_flow(a_flow(id="flow_1", contents=value, wait=value), sealing)
        ),
        read=lambda row, sealing: flows.flow_from_row(row, sealing).checked(),
        values=lambda flow: [flow.contents, flow.wait],
        columns=(9, 18),
    ),
    "flow node": SealedColumn(
        write=lambda value, sealing: cells(
            flows.row_from_flow_node(a_flow_node(flow_id="flow_1", plan=value), sealing)
        ),
        read=lambda row, sealing: _readable(flows.flow_node_from_row(row, sealing)),
        values=lambda node: [node.plan],
        columns=(3,),
    ),
    "message": SealedColumn(
        write=lambda value, sealing: cells(
            conversation.row_from_message(a_message(id="msg_1", body=value), sealing)
        ),
        read=lambda row, sealing: conversation.message_from_row(row, sealing).checked(),
        values=lambda message: [message.body],
        columns=(8,),
    ),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def _readable(node: FlowNode) -> FlowNode:
    if node.is_sealed or node.is_damaged:
        node.read_plan()
    return node


def journal_summary(preview: str) -> Any:
    from tests.store.program_records import a_summary

    return a_summary(preview=preview)


@pytest.fixture
def sealing() -> Sealing:
    """Of a ledger that has a key."""
    return sealing_with(LedgerKey.new())


def sealing_with(key: LedgerKey | None, *, is_lenient: bool = False) -> Sealing:
    vault = Vault(NoKey(), is_lenient=is_lenient)
    vault.known = key
    return Sealing(vault)


@EVERY_KIND
def test_every_value_of_a_record_is_sealed_in_its_row_and_opened_again(
    kind: SealedColumn, sealing: Sealing
) -> None:
    row = kind.write(SECRET, sealing)

    assert [row[place][:1] for place in kind.columns] == [MARK] * len(kind.columns)
    assert not any(b"third stone" in cell for cell in row if isinstance(cell, bytes))
    found = kind.values(kind.read(row, sealing))
    assert [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in found]
    assert all(b"third stone" in (one if isinstance(one, bytes) else str(one).encode()) for one in found)


@EVERY_KIND
def test_a_sealed_value_that_was_moved_from_another_record_does_not_open(
    kind: SealedColumn, sealing: Sealing
) -> None:
    stolen = sealing.seal(SECRET, "steps.result", "task_other", "", "look", "1")
    row = kind.write(SECRET, Planted(stolen))

    with pytest.raises(KeyLost):
        kind.read(row, sealing)


@pytest.mark.parametrize("name", ["task", "turn", "question", "effect"])
def test_a_sealed_value_does_not_open_in_another_column_of_its_record(name: str, sealing: Sealing) -> None:
    kind = KINDS[name]
    row = kind.write(SECRET, sealing)
    moved = kind.write(SECRET, Planted(row[kind.columns[-1]]))

    with pytest.raises(KeyLost):
        kind.read(moved, sealing)


@EVERY_KIND
def test_a_reader_without_a_key_is_told_that_it_is_lost(kind: SealedColumn, sealing: Sealing) -> None:
    row = kind.write(SECRET, sealing)

    for other in (sealing_with(None), sealing_with(LedgerKey.new())):
        with pytest.raises(KeyLost, match="sealed with a key that is not available"):
            kind.read(row, other)


@EVERY_KIND
def test_a_person_who_only_looks_sees_that_it_is_sealed_and_gets_no_error(
    kind: SealedColumn, sealing: Sealing
) -> None:
    row = kind.write(SECRET, sealing)
    read = kind.read if kind is not KINDS["task"] else work.task_from_row

    for key in (None, LedgerKey.new()):
        looking = sealing_with(key, is_lenient=True)
        shown = repr(read(row, looking))
        assert "third stone" not in shown
        assert kind is KINDS["turn"] or "[sealed]" in shown


@EVERY_KIND
def test_a_flipped_bit_in_a_sealed_value_is_damage(kind: SealedColumn, sealing: Sealing) -> None:
    for column in kind.columns:
        row = kind.write(SECRET, sealing)
        row[column] = row[column][:-1] + bytes([row[column][-1] ^ 1])
        with pytest.raises(RowDamaged):
            kind.read(row, sealing)


# --- opening a ledger


def leave_secret(store: Store, value: bytes = SECRET) -> str:
    task = a_task(arguments=value)
    store.write_now(lambda tx: tx.tasks.create(task))
    return task.id


def arguments_of(store: Store, task_id: str) -> bytes:
    return store.read_now(lambda tx: tx.tasks.get(task_id).arguments)


def fact_of(store: Store) -> str | None:
    return store.read_now(lambda tx: tx.boots.fact(FACT))


def test_a_ledger_without_secrets_has_no_key(shared_ledger: SharedLedger) -> None:
    store = shared_ledger.open()
    leave_secret(store, PLAIN)

    assert fact_of(store) is None
    shared_ledger.close()
    shared_ledger.outer = MemoryKey()
    leave_secret(shared_ledger.open())


def test_a_process_without_the_key_is_refused(shared_ledger: SharedLedger) -> None:
    task_id, right = leave_secret(shared_ledger.open()), shared_ledger.outer
    shared_ledger.close()

    shared_ledger.outer = NoKey()
    with pytest.raises(KeyMissing, match="is not in this place"):
        shared_ledger.open()
    shared_ledger.outer = MemoryKey()
    with pytest.raises(KeyWrong, match="this ledger is sealed with"):
        shared_ledger.open()
    shared_ledger.outer = right
    assert arguments_of(shared_ledger.open(), task_id) == SECRET


@first_on_both("mode", [SealMode.SECRETS, SealMode.ALL, SealMode.NEVER], ledger="shared_ledger")
def test_what_is_sealed_follows_the_setting_and_all_of_it_is_read_in_every_mode(
    shared_ledger: SharedLedger, mode: SealMode
) -> None:
    shared_ledger.mode = mode
    store = shared_ledger.open()
    ids = [(leave_secret(store, value), value) for value in (SECRET, PLAIN, large(), large(SECRET.decode()))]
    rows = store.read_now(lambda tx: [bytes(_raw_arguments(tx, one)) for one, _ in ids])

    assert [row[:1] == MARK for row in rows[:2]] == {
        SealMode.ALL: [True, True],
        SealMode.SECRETS: [True, False],
        SealMode.NEVER: [False, False],
    }[mode]
    assert (fact_of(store) is None) is (mode is SealMode.NEVER)
    for other in SealMode:
        shared_ledger.mode = other
        looking = shared_ledger.open()
        found = looking.read_now(lambda tx: [tx.blobs.open(tx.tasks.get(one).arguments) for one, _ in ids])
        assert found == [value for _, value in ids]
        assert looking.verify() == []


def _raw_arguments(tx: Tx, task_id: str) -> bytes:
    row = tx.statements.one("get_task", {"id": task_id})
    assert row is not None
    return bytes(row[5])


# --- the first key


def test_stores_that_make_the_key_at_the_same_moment_end_with_one(shared_ledger: SharedLedger) -> None:
    stores = [shared_ledger.open() for _ in range(4)]
    start = threading.Barrier(len(stores))

    def write(store: Store) -> str:
        start.wait(10)
        return leave_secret(store)

    with ThreadPoolExecutor(len(stores)) as threads:
        ids = list(threads.map(write, stores))

    assert len({store.sealing.vault.known.id for store in stores if store.sealing.vault.known}) == 1
    assert [arguments_of(shared_ledger.open(), one) for one in ids] == [SECRET] * len(ids)


def plan_with_secret(store: Store) -> Callable[[Tx], object]:
    _, claim = running_run(store)
    plan = Plan(items=(PlanItem(id="a", title=SECRET.decode()),))
    return lambda tx: tx.journal.save_plan(claim, plan, now=START)


def mail_with_secret(store: Store) -> Callable[[Tx], object]:
    task_id = leave_secret(store, PLAIN)
    return lambda tx: send(tx, task_id, body=SECRET, key="once")


def turn_with_secret(store: Store) -> Callable[[Tx], object]:
    run, _ = running_run(store)
    turn = a_turn(run, steps=(journal_summary(SECRET.decode()),))
    return lambda tx: tx.turns.commit(turn, "main:1", is_over=False)


def task_with_large_secret(_: Store) -> Callable[[Tx], object]:
    task = a_task(arguments=large(SECRET.decode()), dedup_key="once")
    return lambda tx: tx.tasks.create(task)


FIRST = [plan_with_secret, mail_with_secret, turn_with_secret, task_with_large_secret]


@first_on_both("case", FIRST, ledger="shared_ledger")
def test_a_write_that_seals_the_first_secret_inside_its_transaction_works(
    shared_ledger: SharedLedger, case: Callable[[Store], Callable[[Tx], object]]
) -> None:
    store = shared_ledger.open()
    write = case(store)
    assert fact_of(store) is None

    store.write_now(write)

    assert fact_of(store) is not None
    assert shared_ledger.open().verify() == []


async def _all_at_once(store: Store, writes: list[Callable[[Tx], object]]) -> list[Any]:
    return await asyncio.gather(*(store.write(write) for write in writes), return_exceptions=True)


@first_on_both("case", FIRST, ledger="shared_ledger")
def test_it_works_in_a_group_with_others_that_succeed_and_fail(
    shared_ledger: SharedLedger, case: Callable[[Store], Callable[[Tx], object]]
) -> None:
    store = shared_ledger.open()
    write = case(store)
    before, after = a_task(arguments=PLAIN), a_task(arguments=OTHER)

    def refuse(_tx: Tx) -> None:
        raise KeyError("by the test")

    answers = asyncio.run(
        _all_at_once(
            store, [lambda tx: tx.tasks.create(before), refuse, write, lambda tx: tx.tasks.create(after)]
        )
    )

    assert [isinstance(one, Exception) for one in answers] == [False, True, False, False]
    again = shared_ledger.open()
    assert [arguments_of(again, one.id) for one in (before, after)] == [PLAIN, OTHER]
    assert again.verify() == []


def test_a_first_secret_whose_write_then_fails_leaves_a_key_that_the_next_one_uses(
    shared_ledger: SharedLedger,
) -> None:
    store = shared_ledger.open()
    task, other = a_task(arguments=SECRET), a_task(arguments=PLAIN)

    def fail(tx: Tx) -> None:
        tx.tasks.create(task)
        raise KeyError("by the test")

    answers = asyncio.run(_all_at_once(store, [fail, lambda tx: tx.tasks.create(other)]))

    assert [isinstance(one, KeyError) for one in answers] == [True, False]
    task_id = leave_secret(store)
    again = shared_ledger.open()
    assert arguments_of(again, task_id) == SECRET
    assert again.read_now(lambda tx: tx.tasks.get_many([task.id])) == {}


def test_a_write_for_which_no_key_can_be_made_says_so_and_the_others_go_on(
    shared_ledger: SharedLedger,
) -> None:
    shared_ledger.outer = NoKey()
    store = shared_ledger.open()
    sealed, other = a_task(arguments=SECRET), a_task(arguments=PLAIN)

    answers = asyncio.run(
        _all_at_once(store, [lambda tx: tx.tasks.create(sealed), lambda tx: tx.tasks.create(other)])
    )

    assert isinstance(answers[0], CannotSeal)
    assert not isinstance(answers[1], BaseException)
    assert store.read_now(lambda tx: list(tx.tasks.get_many([sealed.id, other.id]))) == [other.id]


def test_a_secret_that_is_sealed_before_its_transaction_gets_a_key_that_is_committed(
    shared_ledger: SharedLedger,
) -> None:
    store = shared_ledger.open()
    run, claim = running_run(store)
    save = saving_step(a_step(run, result=SECRET), claim.fence, store.sealing)
    packed = pack(large(SECRET.decode()), store.sealing)

    # The write itself is never run: what others seal is opened all the same.
    assert save is not None
    assert packed.body is not None
    assert arguments_of(shared_ledger.open(), leave_secret(store)) == SECRET


# --- twice


@pytest.fixture
def sealed_store() -> Any:
    """A store that seals everything, secret or not."""
    store = SqliteStore(None, clock=FakeClock(), vault=Vault(MemoryKey(), SealMode.ALL))
    yield store
    store.close()


@pytest.mark.parametrize("case", test_twice.SAME_ANSWER, ids=lambda case: case.__name__)
def test_a_write_of_sealed_values_that_runs_again_answers_the_same_and_changes_nothing(
    sealed_store: Store, case: Callable[[Store], Callable[[Tx], object]]
) -> None:
    write = case(sealed_store)

    RepeatingStore(sealed_store).write_now(write)

    assert sealed_store.verify() == []


@pytest.mark.parametrize("case", test_twice.SAYS_SO, ids=lambda case: case.__name__)
def test_a_verb_with_sealed_values_that_runs_again_changes_nothing(
    sealed_store: Store, case: Callable[[Store], Callable[[Tx], object]]
) -> None:
    write = case(sealed_store)
    sealed_store.write_now(write)
    after_one = sealed_store.read_now(contents_of)

    sealed_store.write_now(write)

    assert sealed_store.read_now(contents_of) == after_one
