"""One damaged row is shown as damaged; it keeps no process from reading, claiming or resuming the others."""

from __future__ import annotations

import pytest

from holdfast.core.errors import RowDamaged
from holdfast.store import Store
from holdfast.store.rows.work import row_from_run, row_from_task, run_from_row, task_from_row
from holdfast.store.sealing import CLOSED
from tests.builders import a_run, a_task, stored_run


@pytest.mark.parametrize(
    ("place", "value"),
    [(2, "pythom"), (6, b"{"), (11, "silemt"), (14, "succeedee"), (17, b"nonsense"), (20, b"[")],
    ids=["runtime", "origin", "notify", "status", "progress", "failure"],
)
def test_a_task_of_which_a_word_does_not_decode_is_damaged_and_still_shown(place: int, value: object) -> None:
    row = list(row_from_task(a_task(), CLOSED).values())
    row[place] = value

    assert task_from_row(row).is_damaged


@pytest.mark.parametrize(("place", "value"), [(9, "runnimg"), (12, "reazy"), (21, b"{")])
def test_a_run_of_which_a_word_does_not_decode_is_damaged_and_still_read(place: int, value: object) -> None:
    row = list(row_from_run(a_run(a_task())).values())
    row[place] = value

    assert run_from_row(row).is_damaged


def test_what_cannot_be_mended_is_refused_by_name() -> None:
    row = list(row_from_task(a_task(), CLOSED).values())
    row[12] = "yesterday"

    with pytest.raises(RowDamaged, match=str(row[0])):
        task_from_row(row)


def test_an_intact_task_is_not_damaged(store: Store) -> None:
    run = stored_run(store)

    assert not store.read_now(lambda tx: tx.tasks.get(run.task_id)).is_damaged
