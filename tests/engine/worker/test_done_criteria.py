"""Done criteria: a program that comes to its end is done only if its checks hold."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.errors import BadInput
from holdfast.core.events import EventKind
from holdfast.core.transitions import TaskStatus
from tests.engine.stage import Stage
from tests.engine.workers import GateAndNotes
from tests.fake_secrets import SHAPES


async def test_a_program_that_ends_without_its_file_is_woken_and_told_what_is_missing(
    quick: Stage, tmp_path: Path
) -> None:
    report = tmp_path / "report.md"

    async def write() -> None:
        report.write_text("# Tides")

    @hf.task(done=[hf.file_exists(str(report), name="the report exists")])
    async def forgetful(run: hf.Run) -> str:
        if run.resumed is not None and run.resumed.unmet:
            await run.step(write)
            assert run.resumed.packet.done_criteria == ["the report exists"]
        return "done"

    await quick.open(forgetful)
    handle = await quick.start(forgetful())
    await quick.settle()
    assert (await handle.status()) is TaskStatus.WAITING

    assert await quick.to_the_end(handle) is TaskStatus.SUCCEEDED
    checked = await quick.events(handle, EventKind.DONE_CHECKED)
    assert [event.facts for event in checked] == [
        {"met": [], "unmet": {"the report exists": f"{report} does not exist"}},
        {"met": ["the report exists"], "unmet": {}},
    ]


async def test_a_secret_in_the_name_of_a_check_is_not_in_the_checkpoint(quick: Stage, tmp_path: Path) -> None:
    missing = tmp_path / SHAPES["github"][0]

    @hf.task(done=[hf.file_exists(str(missing))])
    async def forgetful(run: hf.Run) -> None:
        """Never done."""

    await quick.open(forgetful)
    handle = await quick.start(forgetful())
    await quick.settle()

    (checkpoint,) = await quick.store.read(lambda tx: tx.checkpoints.page(task_id=handle.id))
    document = checkpoint.read_document()
    assert SHAPES["github"][0] not in checkpoint.document.decode()
    assert document.done_criteria == document.unmet
    assert document.unmet[0].endswith(" exists")


async def test_a_task_that_is_never_done_fails_after_its_attempts_and_names_each_check(quick: Stage) -> None:
    def is_long(result: str) -> bool:
        return len(result) > 100

    fails = hf.command_succeeds(
        [sys.executable, "-c", "print('2 failed'); raise SystemExit(1)"], name="tests"
    )
    hangs = hf.command_succeeds([sys.executable, "-c", "input()"], timeout="10s", name="it reads nothing")

    @hf.task(attempts=3, done=[fails, is_long, hf.holds(lambda: True, name="always"), hangs])
    async def wrong(run: hf.Run) -> str:
        return "short"

    await quick.open(wrong)
    handle = await quick.start(wrong())

    assert await quick.to_the_end(handle) is TaskStatus.FAILED
    failure = (await handle.task()).failure
    assert failure is not None
    assert failure.kind == "done_criteria_unmet"
    assert "tests: it ended with status 1: 2 failed; is_long: it returned False" in failure.message
    assert "always" not in failure.message
    assert len(await quick.runs(handle)) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hf.file_exists(""), "name a file"),
        (lambda: hf.command_succeeds("ls"), "a list of words"),
        (lambda: hf.command_succeeds([]), "a list of words"),
        (lambda: hf.holds(None, name="x"), "a function is needed"),  # type: ignore[arg-type]
        (lambda: hf.task(done=["x"])(_nothing), "is no check"),  # type: ignore[list-item]
        (lambda: hf.task(done=[hf.file_exists("x")] * 2)(_nothing), "another name="),
        (lambda: hf.task(done=hf.file_exists("x"))(_nothing), "a list of checks"),  # type: ignore[call-overload]
    ],
)
def test_a_check_that_makes_no_sense_is_refused(make: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()  # type: ignore[operator]


async def _nothing(run: hf.Run) -> None:
    """Does nothing."""


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    path.write_text(text)


def read_text(path: Path) -> str:
    return path.read_text()


class ReportingTask:
    """A task of a file that one step makes, and of enough work to be woken after it."""

    def __init__(self, stage: Stage, gate: GateAndNotes, path: Path) -> None:
        async def make() -> None:
            gate.notes.append("made")
            stage.clock.advance(seconds=1)
            write_text(path, "# Tides")

        async def work(number: int) -> int:
            stage.clock.advance(minutes=3)
            return number

        @hf.task(name="reporting", run_timeout="10m", smart_wake="always")
        async def reporting(run: hf.Run) -> str:
            await run.step(make)
            stage.clock.advance(seconds=1)
            await run.artifact(path)
            async for turn in run.turns(max=5):
                await turn.step(work, turn.number)
            return read_text(path)

        self.task = reporting


async def test_a_file_that_is_gone_at_the_wake_is_made_again(
    quick: Stage, gate: GateAndNotes, tmp_path: Path
) -> None:
    path = tmp_path / "report.md"
    task = ReportingTask(quick, gate, path).task
    await quick.open(task)
    handle = await quick.start(task())
    await quick.settle()

    path.unlink()

    assert await quick.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert (await handle.result(), gate.notes) == ("# Tides", ["made", "made"])
    (event,) = await quick.events(handle, EventKind.ARTIFACT_DIFFERED)
    said = [event.facts[name] for name in ("name", "found", "expected_sha256", "found_sha256", "decision")]
    assert said == ["report.md", "missing", checksum("# Tides"), None, "redo"]


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        ("keep", TaskStatus.SUCCEEDED, "# Winds"),
        ("redo", TaskStatus.SUCCEEDED, "# Tides"),
        ("stop", TaskStatus.FAILED, "# Winds"),
    ],
)
async def test_a_file_that_was_changed_before_the_wake_is_a_question_with_both_checksums(
    quick: Stage, gate: GateAndNotes, tmp_path: Path, answer: str, status: TaskStatus, content: str
) -> None:
    path = tmp_path / "report.md"
    task = ReportingTask(quick, gate, path).task
    await quick.open(task)
    handle = await quick.start(task())
    await quick.settle()
    path.write_text("# Winds")
    await quick.pass_time()
    await quick.settle()

    (question,) = await quick.holdfast.questions()
    saved, found = checksum("# Tides"), checksum("# Winds")
    assert question.question.startswith(
        f"report.md ({path}) is changed since it was saved: its checksum was {saved}, now {found}. "
    )
    await quick.holdfast.answer(question.id, answer)

    assert await quick.to_the_end(handle) is status
    assert path.read_text() == content


def unfinished_report(
    stage: Stage, gate: GateAndNotes, path: Path, appendix: Path
) -> hf.TaskDefinition[[], str]:
    """A task without a run_timeout that is woken because a file is missing: only the second run makes it."""

    async def make() -> None:
        gate.notes.append("made")
        write_text(path, "# Tides")

    @hf.task(name="unfinished", done=[hf.file_exists(str(appendix), name="the appendix exists")])
    async def unfinished(run: hf.Run) -> str:
        await run.step(make)
        stage.clock.advance(seconds=1)
        await run.artifact(path)
        if run.resumed is not None:
            await run.step(hf.step(lambda: write_text(appendix, "tables"), name="append"))
        return read_text(path)

    return unfinished


@pytest.mark.parametrize("dies", [False, True])
async def test_a_file_that_was_changed_before_a_wake_by_unmet_criteria_is_a_question(
    quick: Stage, gate: GateAndNotes, tmp_path: Path, *, dies: bool
) -> None:
    path = tmp_path / "report.md"
    task = unfinished_report(quick, gate, path, tmp_path / "appendix.md")
    await quick.open(task)
    handle = await quick.start(task())
    await quick.settle()
    assert await handle.status() is TaskStatus.WAITING
    path.write_text("# Winds")

    await quick.pass_time()
    if dies:  # before the follow-up run has asked
        await quick._wake_timer.run_once()
        await quick._claims.take(1)
        await quick.open(task)
    await quick.settle()

    (question,) = await quick.holdfast.questions()
    assert f"its checksum was {checksum('# Tides')}, now {checksum('# Winds')}" in question.question
    await quick.holdfast.answer(question.id, "redo")
    assert await quick.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert (await handle.result(), gate.notes) == ("# Tides", ["made", "made"])
