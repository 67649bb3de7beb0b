"""tasks show and tasks cancel of work that a producer executes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus
from holdfast.engine.producers.writes import (
    NewRecord,
    failing,
    finishing,
    noting_drops,
    progressing,
    recording,
)
from holdfast.runtimes.cli import pid_reference
from holdfast.store.blobs import pack
from holdfast.testing import FakeClock
from tests.doors.calls import Opens, Run


def a_lost_render(ledger: Opens, clock: FakeClock) -> str:
    """The id of a task whose producer came back after it was lost."""
    now = clock.now()
    new = NewRecord(
        name="render", goal="render", owner="ada", runtime="media", run_id="r-1", agent_id="painter"
    )
    with ledger() as store:
        work = store.write_now(recording(new, is_running=True, now=now))
        store.write_now(progressing("r-1", summary="frame 1", tool="ffmpeg", tool_uses=2, now=now))
        failure = Failure(kind="lost", message="its machine is gone")
        store.write_now(failing("r-1", failure, status=RunStatus.LOST, now=now))
        store.write_now(finishing("r-1", pack(b"3", store.sealing), summary="three frames", now=now))
        store.write_now(noting_drops("r-1", 4, now=now))
    return work.task.id


def test_show_tells_what_the_producer_said_and_what_came_too_late(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    task_id = a_lost_render(ledger, clock)

    shown, whole = run("tasks", "show", task_id), run("tasks", "show", task_id, "--json").json

    assert "its producer reported succeeded: three frames" in shown.out
    assert "4 reports of its producer did not reach the ledger" in shown.out
    for words in ("painter", "ffmpeg (2 uses)", "frame 1", "its machine is gone"):
        assert words in shown.out
    assert whole["recorded"]["lateReport"]["result"]["value"] == 3
    assert whole["task"]["status"] == "lost"


def test_cancel_tells_why_a_task_that_has_ended_is_not_cancelled(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    task_id = a_lost_render(ledger, clock)

    called = run("tasks", "cancel", task_id, "--json")

    assert called.status == 3
    assert (called.json["outcome"], called.json["cancelled"]) == ("already_ended", False)
    assert called.json["reason"] == "it has already ended as lost"


@pytest.mark.slow
def test_without_a_gateway_the_command_itself_stops_a_recorded_process(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    reference = pid_reference(child.pid)
    new = NewRecord(name="build", goal="build", owner="ada", runtime="cli", run_id="b-1", reference=reference)
    with ledger() as store:
        work = store.write_now(recording(new, is_running=True, now=clock.now()))

    called = run("tasks", "cancel", work.task.id, "--json")

    assert child.wait(timeout=30) == -signal.SIGTERM
    assert (called.json["outcome"], called.json["cancelled"]) == ("cancelled", True)
