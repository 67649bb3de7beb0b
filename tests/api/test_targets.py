"""A task is named by its id, a prefix of it, a run id, a key or a session key; never by an ambiguous one."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.core.errors import AmbiguousId, NotFound
from holdfast.core.ids import RunId, TaskId
from holdfast.core.recorded import RecordedDetails, ScopeKind
from holdfast.core.transitions import TaskStatus
from holdfast.store import Store, Tx
from tests.builders import START, a_run, a_task, put

SESSION = "agent:ada:main"


def stored(store: Store, task_id: str, *, run_id: str | None = None, **facts: Any) -> str:
    task = a_task(id=TaskId(task_id), **facts)

    def write(tx: Tx) -> None:
        put(tx, task, *([a_run(task, id=RunId(run_id))] if run_id else []))

    store.write_now(write)
    return task_id


def found(store: Store, target: str, reach: Reach = EVERYTHING) -> str:
    return store.read_now(lambda tx: reach.resolve(tx, target))


def candidates(store: Store, target: str, reach: Reach = EVERYTHING) -> set[str]:
    with pytest.raises(AmbiguousId) as refusal:
        found(store, target, reach)
    assert all(one in str(refusal.value) for one in refusal.value.matches)
    return set(refusal.value.matches)


def test_every_name_of_a_task_leads_to_it(store: Store) -> None:
    task_id = stored(store, "task_0abc", run_id="run_9xyz", dedup_key="Monday: report", session_key=SESSION)
    stored(store, "task_1abc", run_id="run_8xyz")

    for name in ("task_0abc", "task_0", "0abc", "0", "run_9xyz", "run_9", "Monday: report", SESSION):
        assert found(store, name) == task_id


def test_a_producers_own_run_id_leads_to_its_task(store: Store) -> None:
    assert found(store, stored(store, "task_1", run_id="render-7") and "render-7") == "task_1"


def test_a_child_session_leads_to_the_work_that_is_done_in_it(store: Store) -> None:
    task_id = stored(store, "task_1")
    details = RecordedDetails(
        task_id=TaskId(task_id),
        scope=ScopeKind.SYSTEM,
        created_at=START,
        last_event_at=START,
        child_session_key="agent:ada:child",
    )
    store.write_now(lambda tx: tx.recorded.create(details))

    assert found(store, "agent:ada:child") == task_id


def test_a_whole_id_means_that_task_although_others_have_it_as_a_key_or_a_prefix(store: Store) -> None:
    stored(store, "task_1")
    stored(store, "task_12", dedup_key="task_1")

    assert found(store, "task_1") == "task_1"


def test_a_prefix_of_several_ids_is_refused_with_them(store: Store) -> None:
    ids = {stored(store, "task_1a"), stored(store, "task_1b")}

    assert candidates(store, "task_1") == candidates(store, "1") == ids


def test_a_key_that_several_owners_use_is_refused_with_their_tasks(store: Store) -> None:
    ids = {stored(store, "task_1", dedup_key="k", owner=owner) for owner in ["ada"]}
    ids |= {stored(store, "task_2", dedup_key="k", owner="bob")}

    assert candidates(store, "k") == ids
    assert found(store, "k", Reach(owner="bob")) == "task_2"


def test_a_name_that_is_the_run_of_one_and_the_key_of_another_is_refused_with_both(store: Store) -> None:
    ids = {stored(store, "task_1", run_id="nightly"), stored(store, "task_2", dedup_key="nightly")}

    assert candidates(store, "nightly") == ids


def test_a_session_stands_for_its_one_task_that_has_not_ended_or_else_for_its_newest(store: Store) -> None:
    stored(store, "task_1", session_key=SESSION, status=TaskStatus.SUCCEEDED)
    stored(store, "task_3", session_key=SESSION, status=TaskStatus.FAILED)
    newest = found(store, SESSION)
    stored(store, "task_2", session_key=SESSION, status=TaskStatus.WAITING)
    alive = found(store, SESSION)
    stored(store, "task_4", session_key=SESSION)

    assert (newest, alive) == ("task_3", "task_2")
    assert candidates(store, SESSION) == {"task_2", "task_4"}


@pytest.mark.parametrize(
    "nonsense", ["", "x" * 500, "task_", "TASK_1", "%", "task_1' OR 1=1 --", "../1", "\x00", "task_1\n"]
)
def test_what_names_nothing_is_not_found(store: Store, nonsense: str) -> None:
    stored(store, "other_1", run_id="other-run", dedup_key="key", session_key=SESSION)

    with pytest.raises(NotFound):
        found(store, nonsense)


@pytest.mark.parametrize(
    "reach",
    [Reach(owner="bob"), Reach(names=frozenset({"mine"})), Reach(owner="ada", names=frozenset({"mine"}))],
)
@pytest.mark.parametrize("name", ["task_1", "task_", "run_1", "run_", "k", SESSION])
def test_a_limited_caller_finds_nothing_outside_its_reach_by_any_name(
    store: Store, reach: Reach, name: str
) -> None:
    stored(store, "task_1", run_id="run_1", dedup_key="k", session_key=SESSION)

    with pytest.raises(NotFound):
        found(store, name, reach)


def test_what_a_limited_caller_may_not_reach_makes_none_of_its_names_ambiguous(store: Store) -> None:
    stored(store, "task_1", run_id="run_1", dedup_key="k", session_key=SESSION, owner="bob", name="theirs")
    mine = stored(store, "task_2", run_id="run_2", dedup_key="k", session_key=SESSION, name="mine")

    for reach in (Reach(owner="ada"), Reach(names=frozenset({"mine"}))):
        assert [found(store, name, reach) for name in ("run_2", "k", SESSION)] == [mine] * 3
