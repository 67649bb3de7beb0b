"""run in a process of its own: killed in the middle, left by Ctrl-C, watched and answered in a terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.doors.calls import Run, run_process
from tests.doors.terminals import Beside, Terminal

pytestmark = pytest.mark.slow

SAMPLE_TASKS = "tests.doors.sample_tasks"
INTERRUPT = "\x03"


class Tally:
    """The task that notes 1 to 5 and is held at the third until its gate opens."""

    def __init__(self, directory: Path) -> None:
        self._marks = directory / "marks"
        self._gate = directory / "gate"

    @property
    def arguments(self) -> tuple[str, ...]:
        marks, gate = f"marks={self._marks}", f"gate={self._gate}"
        return (f"{SAMPLE_TASKS}:tally", "--arg", "to=5", "--arg", marks, "--arg", gate)

    def open_gate(self) -> None:
        self._gate.touch()

    def noted(self) -> list[int]:
        return [int(line) for line in self._marks.read_text(encoding="utf-8").split()]


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    return Tally(tmp_path)


def only_task(run: Run) -> dict[str, object]:
    (task,) = run("tasks", "list", "--json").json["tasks"]
    assert isinstance(task, dict)
    return task


def test_a_task_whose_process_is_killed_goes_on_where_it_was(run: Run, home: Path, tally: Tally) -> None:
    with Beside(home, "run", *tally.arguments) as beside:
        beside.read_until("noted 3")
        beside.send(signal.SIGKILL)
        assert beside.end()[0] == -signal.SIGKILL
    tally.open_gate()
    task_id = str(only_task(run)["id"])

    called = run_process(home, "run", "--resume", task_id, f"{SAMPLE_TASKS}:tally")

    assert (called.status, called.out) == (0, "15\n")
    # Finished turns are never run again; the step that was cut short is.
    assert tally.noted() == [1, 2, 3, 3, 4, 5]
    assert "resumed after crash" in called.err


def test_a_killed_task_goes_on_with_its_key_too(run: Run, home: Path, tally: Tally) -> None:
    with Beside(home, "run", *tally.arguments, "--key", "k") as beside:
        beside.read_until("noted 3")
        beside.send(signal.SIGKILL)
        beside.end()
    tally.open_gate()

    called = run_process(home, "run", *tally.arguments, "--key", "k", "--json")

    assert called.json["result"] == 15
    assert called.json["isNew"] is False
    assert only_task(run)["status"] == "succeeded"


@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_who_is_told_to_stop_pauses_the_task_and_says_how_to_go_on(
    run: Run, home: Path, tally: Tally, number: signal.Signals, status: int
) -> None:
    with Beside(home, "run", *tally.arguments) as beside:
        beside.read_until("noted 3")
        beside.send(number)
        ended = beside.end()
    task = only_task(run)

    assert ended == (status, "")
    assert task["status"] == "paused"
    assert f"to resume it: holdfast run --resume {task['id']} {SAMPLE_TASKS}:tally" in beside.err
    tally.open_gate()
    assert run_process(home, "run", "--resume", str(task["id"]), SAMPLE_TASKS).out == "15\n"
    assert run("checkpoints", "list", "--json").json["counts"] == {"resumed": 1}


def test_a_paused_task_as_json_says_so(home: Path, tally: Tally) -> None:
    with Beside(home, "run", *tally.arguments, "--json") as beside:
        beside.read_until("noted 3")
        beside.send(signal.SIGINT)
        status, out = beside.end()

    assert status == 130
    assert '"status": "paused"' in out
    assert '"waits_on": "resume"' in out


def test_a_second_interrupt_leaves_at_once_and_the_effect_is_in_doubt(run: Run, home: Path) -> None:
    with Beside(home, "run", f"{SAMPLE_TASKS}:stuck") as beside:
        beside.read_until("hanging")
        beside.send(signal.SIGINT)
        beside.read_until("press Ctrl-C again to exit at once")
        beside.send(signal.SIGINT)
        assert beside.end() == (130, "")
    task_id = str(only_task(run)["id"])

    called = run_process(home, "run", "--resume", task_id, f"{SAMPLE_TASKS}:stuck")

    assert called.status == 1
    assert "it is unknown whether hangs() happened: the process died" in called.err


def test_a_task_that_waits_is_left_waiting(run: Run, home: Path) -> None:
    with Beside(home, "run", f"{SAMPLE_TASKS}:asks") as beside:
        beside.read_until("to answer: holdfast questions answer ques_")
        beside.send(signal.SIGINT)
        assert beside.end()[0] == 130

    assert only_task(run)["status"] == "waiting"
    assert "is now waiting (waits for an answer)" in beside.err


def test_a_question_is_answered_from_elsewhere(run: Run, home: Path) -> None:
    with Beside(home, "run", f"{SAMPLE_TASKS}:asks") as beside:
        beside.read_until("red|blue")
        (question,) = run("questions", "list", "--json").json["questions"]
        assert run("questions", "answer", question["id"], "blue", "--by", "ada").status == 0
        beside.read_until("? Who are you?")
        (question,) = run("questions", "list", "--json").json["questions"]
        run("questions", "answer", question["id"], "Eve")
        status, out = beside.end()

    assert (status, out) == (0, "blue for Eve\n")
    assert "ada answered" in beside.err


def test_a_cancel_from_elsewhere_ends_the_following(run: Run, home: Path) -> None:
    with Beside(home, "run", f"{SAMPLE_TASKS}:asks") as beside:
        beside.read_until("red|blue")
        run("tasks", "cancel", str(only_task(run)["id"]), "--reason", "not needed")
        status, out = beside.end()

    assert (status, out) == (1, "")
    assert "cancelled" in beside.err
    assert "not needed" in beside.err


# --- in a terminal


def test_a_question_is_answered_where_it_is_shown(home: Path) -> None:
    with Terminal(home, "run", f"{SAMPLE_TASKS}:asks") as terminal:
        terminal.read_until("your answer (number or text): ")
        terminal.press("green\n")
        terminal.read_until("choose one of: red, blue")
        terminal.press("2\n")
        terminal.read_until('[Enter for "nobody"]: ')
        terminal.press("\n")
        status = terminal.end()

    assert status == 0
    assert "1) red" in terminal.shown
    assert "blue for nobody" in terminal.shown


def test_a_question_that_another_person_answers_is_not_asked_any_more(run: Run, home: Path) -> None:
    with Terminal(home, "run", f"{SAMPLE_TASKS}:asks") as terminal:
        terminal.read_until("your answer (number or text): ")
        (question,) = run("questions", "list", "--json").json["questions"]
        run("questions", "answer", question["id"], "red")
        terminal.read_until("this question was answered elsewhere")
        terminal.read_until("your answer")
        terminal.press("Eve\n")

        assert terminal.end() == 0
    assert "red for Eve" in terminal.shown


def test_who_types_nothing_more_is_told_how_to_answer_elsewhere(run: Run, home: Path) -> None:
    with Terminal(home, "run", f"{SAMPLE_TASKS}:asks") as terminal:
        terminal.read_until("your answer (number or text): ")
        terminal.press("\x04")
        terminal.read_until("to answer: holdfast questions answer ques_")
        terminal.press(INTERRUPT)

        assert terminal.end() == 130


def test_a_review_is_waited_for_in_a_terminal(run: Run, home: Path) -> None:
    with Terminal(home, "run", f"{SAMPLE_TASKS}:pays") as terminal:
        terminal.read_until("holdfast reviews resolve eff_")
        (review,) = run("reviews", "list", "--json").json["reviews"]
        run("reviews", "resolve", review["effect"]["id"], "done", "--result", '"paid"')

        assert terminal.end() == 0
    assert "reviewed pay: done" in terminal.shown
    assert "\r\npaid\r\n" in terminal.shown.replace("\x1b[2K", "\r\n")


def test_ctrl_c_in_a_terminal_pauses_and_gives_the_cursor_back(run: Run, home: Path, tally: Tally) -> None:
    with Terminal(home, "run", *tally.arguments) as terminal:
        terminal.read_until("2/5 (40%) noting")
        terminal.press(INTERRUPT)

        assert terminal.end() == 130
    assert terminal.shown.rfind("\x1b[?25h") > terminal.shown.rfind("\x1b[?25l")
    assert only_task(run)["status"] == "paused"


def test_two_interrupts_in_a_terminal_leave_at_once_with_the_cursor(home: Path) -> None:
    with Terminal(home, "run", f"{SAMPLE_TASKS}:stuck") as terminal:
        terminal.read_until("hanging")
        terminal.press(INTERRUPT)
        terminal.read_until("press Ctrl-C again")
        terminal.press(INTERRUPT)

        assert terminal.end() == 130
    assert terminal.shown.rfind("\x1b[?25h") > terminal.shown.rfind("\x1b[?25l")
