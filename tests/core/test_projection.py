"""How a run that the ledger has as running is shown: as running, unless its worker is gone."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.projection import NOT_RESCUED, project, why_not_carried
from holdfast.core.run import Queue, RunRecord
from holdfast.core.transitions import RunStatus, TaskStatus
from tests.builders import START, a_boot, a_run, a_task, later

LAPSED = later(hours=1)


def running(**changes: Any) -> RunRecord:
    return a_run(a_task(), status=RunStatus.RUNNING, **changes)


@pytest.mark.parametrize(
    ("proof", "now", "shown"),
    [
        # The proof of a death counts at once.
        ("dead", START, TaskStatus.PAUSED),
        # A worker that is proved alive keeps its run, even if it has not renewed its lease for an hour.
        ("alive", LAPSED, None),
        # Without a proof the lease decides, and not in the moment in which it lapses.
        ("none", START, None),
        ("none", later(seconds=30), None),
        ("none", later(seconds=30) + NOT_RESCUED, TaskStatus.PAUSED),
        # A boot that the ledger does not know may be a living one that was forgotten.
        ("unknown boot", START, None),
        ("unknown boot", LAPSED, TaskStatus.PAUSED),
    ],
)
def test_a_run_is_shown_as_running_until_its_worker_is_known_to_be_gone(
    proof: str, now: Any, shown: TaskStatus | None
) -> None:
    boot = None if proof == "unknown boot" else a_boot()

    found = project(running(), boot, is_alive=proof == "alive", has_died=proof == "dead", now=now)

    assert (None if found is None else found.status) is shown


@pytest.mark.parametrize(("has_died", "shown"), [(True, TaskStatus.LOST), (False, None)])
def test_recorded_work_is_shown_as_lost_only_with_the_death_of_its_process(
    has_died: bool, shown: TaskStatus | None
) -> None:
    run = running(queue=Queue.PRODUCER)

    found = project(run, a_boot(), is_alive=False, has_died=has_died, now=later(days=9))

    assert (None if found is None else found.status) is shown


@pytest.mark.parametrize("status", [one for one in RunStatus if one is not RunStatus.RUNNING])
def test_only_a_running_run_is_shown_in_another_way_than_it_is_stored(status: RunStatus) -> None:
    run = a_run(a_task(), status=status)

    assert project(run, a_boot(), is_alive=False, has_died=True, now=LAPSED) is None


def test_the_reason_names_the_process_or_the_end_of_its_lease() -> None:
    dead = why_not_carried(running(), a_boot(host="here/1"), has_died=True, now=START)
    late = why_not_carried(running(), a_boot(host="here/1"), has_died=False, now=LAPSED)

    assert dead == "its process 1 on here has ended"
    assert late == "the lease of its process 1 on here lapsed at 2026-01-01 00:00:30 UTC"
