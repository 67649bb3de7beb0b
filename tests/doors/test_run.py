"""run: a task of a program is started or found, followed, and its result printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.app.programs import load_program, split_place
from holdfast.cli.arguments import read_arguments
from holdfast.core.errors import BadInput
from tests.builders import stored_run
from tests.doors.calls import UNFIT, Opens, Run, run_process

pytestmark = pytest.mark.slow

SAMPLE_TASKS = "tests.doors.sample_tasks"


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a program imports, and where from, is gone after its test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import holdfast as hf\n{text}", encoding="utf-8")
    return path


# --- the result


def test_a_text_is_printed_as_it_is_and_everything_else_is_said_on_stderr(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=at noon")

    assert (called.status, called.out) == (0, "at noon\n")
    assert "say(text='at noon')" in called.err
    assert "succeeded" in called.err


def test_anything_else_is_printed_as_json(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:gathers")

    assert called.json == ["one", "two"]


def test_a_task_that_returns_nothing_prints_nothing(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:nothing")

    assert (called.status, called.out) == (0, "")


def test_with_json_the_task_is_one_document(run: Run) -> None:
    called = run(
        "run", f"{SAMPLE_TASKS}:say", "--arg", "text=ebb", "--key", "k", "--goal", "the tide", "--json"
    )

    view = called.json
    assert view.pop("id").startswith("task_")
    assert view == {
        "status": "succeeded",
        "result": "ebb",
        "failure": None,
        "steps": 0,
        "name": "say",
        "goal": "the tide",
        "key": "k",
        "waitsOn": None,
        "isNew": True,
    }


def test_a_failure_ends_with_status_1_and_names_the_step(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:broken")

    assert (called.status, called.out) == (1, "")
    assert "failed in step refuse: ValueError: no good" in called.err
    assert "holdfast tasks show task_" in called.err


def test_a_task_that_needs_a_restart_fails_at_once_with_what_helps(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:upgrades")

    assert (called.status, called.out) == (1, "")
    assert "the restart was refused: this process cannot restart itself" in called.err
    assert "`holdfast up`" in called.err


def test_a_failure_says_once_where_it_was_raised(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:broken")

    places = [line for line in called.err.splitlines() if line.startswith("at ")]
    assert [place.partition(".py:")[0] for place in places] == ["at tests/doors/sample_tasks"] * 2
    assert [place.rpartition(" in ")[2] for place in places] == ["broken", "refuse"]
    assert called.err.count("ValueError: no good") == 1


def test_a_failure_as_json_is_the_same_document(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:broken", "--json")

    assert called.status == 1
    assert called.json["status"] == "failed"
    assert called.json["result"] is None
    assert called.json["failure"]["message"] == "no good"
    assert called.json["steps"] == 1


def test_what_the_program_prints_does_not_mix_with_its_result(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:noisy")

    assert called.out == "quiet\n"
    assert {"printed", "written", "from a child"} <= set(called.err.splitlines())


def test_a_result_is_made_fit_for_a_screen_and_for_nothing_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("run", f"{SAMPLE_TASKS}:say", "--json-arg", 'text="a\\u001b[31mred\\u202e"')

    piped = run(*asked)
    monkeypatch.setattr("holdfast.cli.run.is_terminal", lambda stream: stream is sys.stdout)
    seen = run(*asked)

    assert (piped.status, piped.out) == (0, "a\x1b[31mred\u202e\n")
    assert seen.out == "ared\n"
    assert UNFIT.search(seen.out + seen.err) is None


def test_a_large_result_is_printed_whole(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:say", "--json-arg", f'text="{"tide " * 30_000}"')

    assert len(called.out) == 150_001


def test_the_children_of_a_task_are_carried_too(run: Run) -> None:
    run("run", f"{SAMPLE_TASKS}:gathers")

    statuses = [task["status"] for task in run("tasks", "list", "--json").json["tasks"]]
    assert statuses == ["succeeded"] * 3


def test_the_first_task_makes_the_home_and_the_ledger_private(run: Run, home: Path) -> None:
    run("run", f"{SAMPLE_TASKS}:nothing")

    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_a_ledger_in_memory_is_a_rehearsal(run: Run, home: Path) -> None:
    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--store", "memory:")

    assert (called.status, called.out) == (0, "x\n")
    assert not home.exists()


def test_following_leaves_the_home_to_other_commands(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:pays", "--json")

    assert run("tasks", "cancel", called.json["id"]).status == 0


# --- keys, detached tasks, resumed ones


def test_the_same_key_finds_the_first_task_with_its_result(run: Run) -> None:
    first = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--json").json
    second = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--json")

    assert second.json == first | {"isNew": False}
    assert "found by its key" in second.err


def test_the_same_key_with_other_arguments_is_refused(run: Run) -> None:
    run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k")

    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=y", "--key", "k", "--json")

    assert called.status == 3
    assert called.error["code"] == "key_conflict"


def test_another_owner_has_keys_of_its_own(run: Run) -> None:
    first = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--json").json
    second = run(
        "run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--owner", "ada", "--json"
    ).json

    assert first["id"] != second["id"]
    assert run("tasks", "show", second["id"], "--json").json["task"]["owner"] == "ada"


def test_a_detached_task_is_only_recorded(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach")

    task_id = called.out.strip()
    assert called.status == 0
    assert run("tasks", "show", task_id, "--json").json["task"]["status"] == "queued"
    assert f"holdfast run --resume {task_id} {SAMPLE_TASKS}:say" in called.err


def test_a_detached_task_as_json_has_no_result_yet(run: Run) -> None:
    view = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach", "--json").json

    assert (view["status"], view["result"], view["isNew"]) == ("queued", None, True)


def test_a_detached_task_cannot_be_recorded_in_memory(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:nothing", "--detach", "--store", "memory:")

    assert called.status == 2


def test_a_detached_task_is_recorded_once_per_key(run: Run) -> None:
    first = run("run", f"{SAMPLE_TASKS}:nothing", "--detach", "--key", "k").out
    second = run("run", f"{SAMPLE_TASKS}:nothing", "--detach", "--key", "k")

    assert second.out == first
    assert "queued before" in second.err


def test_a_task_that_was_recorded_before_and_has_failed_since_is_still_recorded(run: Run) -> None:
    first = run("run", f"{SAMPLE_TASKS}:broken", "--key", "k", "--json").json

    second = run("run", f"{SAMPLE_TASKS}:broken", "--key", "k", "--detach")

    assert (second.status, second.out) == (0, f"{first['id']}\n")
    assert "failed in step refuse" in second.err


def test_other_work_in_the_ledger_is_left_to_the_worker_that_serves_it(run: Run) -> None:
    other = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach").out.strip()

    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=y")

    assert (called.status, called.out) == (0, "y\n")
    assert run("tasks", "show", other, "--json").json["task"]["status"] == "queued"


def test_a_task_that_was_recorded_before_is_carried_when_its_key_is_named(run: Run) -> None:
    first = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--detach").out.strip()

    called = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--key", "k", "--json")

    assert (called.json["id"], called.json["result"], called.json["isNew"]) == (first, "x", False)


def test_a_task_is_resumed_by_the_beginning_of_its_id(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach").out.strip()

    called = run("run", "--resume", task_id.removeprefix("task_")[:14], f"{SAMPLE_TASKS}:say")

    assert (called.status, called.out) == (0, "x\n")


def test_the_ledger_knows_which_task_of_the_module_is_resumed(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:named", "--detach").out.strip()

    assert run("run", "--resume", task_id, SAMPLE_TASKS).out == "named\n"
    assert run("run", "--resume", task_id, f"{SAMPLE_TASKS}:another name").out == "named\n"


def test_a_task_that_has_succeeded_is_resumed_by_showing_its_result(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=ebb", "--json").json["id"]

    called = run("run", "--resume", task_id, f"{SAMPLE_TASKS}:say")

    assert (called.status, called.out) == (0, "ebb\n")
    assert "(it has already succeeded)" in called.err


def test_a_task_that_failed_goes_on_with_the_new_code(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    write(program, FLAKY.replace("FIX", "raise ValueError('a bug')"))
    failed = run("run", f"{program}:flaky", "--json")
    task_id = failed.json["id"]
    assert (failed.status, failed.json["status"]) == (1, "failed")
    assert f"holdfast run --resume {task_id} {program}:flaky" in failed.err
    write(program, FLAKY.replace("FIX", "return 'two'"))

    called = run("run", "--resume", task_id, f"{program}:flaky")

    assert (called.status, called.out) == (0, "one two\n")
    assert f"{task_id}: " in called.err
    assert "(retried)" in called.err
    assert (tmp_path / "marks").read_text(encoding="utf-8") == "one\n"


def test_a_task_that_fails_again_says_so_and_may_be_tried_once_more(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:broken", "--json").json["id"]

    called = run("run", "--resume", task_id, f"{SAMPLE_TASKS}:broken")

    assert called.status == 1
    assert "(retried)" in called.err
    assert len(run("tasks", "show", task_id, "--json").json["runs"]) > 1


def test_a_cancelled_task_is_not_resumed_unless_a_person_says_so(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach", "--json").json["id"]
    run("tasks", "cancel", task_id)

    called = run("run", "--resume", task_id, f"{SAMPLE_TASKS}:say")

    assert called.status == 3
    assert f"holdfast tasks retry {task_id} --cancelled" in called.err
    assert run("tasks", "retry", task_id, "--cancelled").status == 0
    assert run("run", "--resume", task_id, f"{SAMPLE_TASKS}:say").out == "x\n"


FLAKY = """
from pathlib import Path

async def first() -> str:
    with (Path(__file__).parent / "marks").open("a") as marks:
        marks.write("one\\n")
    return "one"

async def second() -> str:
    FIX

@hf.task(attempts=1)
async def flaky(run: hf.Run) -> str:
    return f"{await run.step(first)} {await run.step(second)}"
"""


def test_a_task_of_another_name_is_not_resumed(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--detach").out.strip()

    called = run("run", "--resume", task_id, f"{SAMPLE_TASKS}:nothing")

    assert called.status == 2
    assert "is a task 'say', not 'nothing'" in called.err
    assert run("tasks", "show", task_id, "--json").json["task"]["status"] != "failed"


def test_a_task_that_the_module_does_not_have_is_not_resumed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    called = run("run", "--resume", task_id, SAMPLE_TASKS)

    assert called.status == 2
    assert "no task 'research'" in called.err


@pytest.mark.parametrize("option", ["--arg=text=x", "--key=k", "--detach", "--goal=g", "--owner=o"])
def test_a_resumed_task_takes_nothing_that_belongs_to_a_new_one(run: Run, option: str) -> None:
    called = run("run", "--resume", "task_0", option, f"{SAMPLE_TASKS}:say")

    assert called.status == 2
    assert option.split("=")[0] in called.err


def test_an_unknown_task_ends_with_status_4(run: Run) -> None:
    run("run", f"{SAMPLE_TASKS}:nothing")

    called = run("run", "--resume", "task_zzz", f"{SAMPLE_TASKS}:nothing")

    assert called.status == 4


def test_resuming_in_an_empty_home_ends_with_status_4_and_makes_nothing(run: Run, home: Path) -> None:
    called = run("run", "--resume", "task_0", f"{SAMPLE_TASKS}:nothing")

    assert called.status == 4
    assert not home.exists()


def test_a_detached_task_beside_another_holder_ends_with_status_5(run: Run, home: Path) -> None:
    from holdfast.store.locks import HomeLock

    run("run", f"{SAMPLE_TASKS}:nothing")
    lock = HomeLock.take(home, role="gateway")
    try:
        called = run("run", f"{SAMPLE_TASKS}:nothing", "--detach")
    finally:
        lock.release()

    assert called.status == 5


# --- what a person is wanted for


def test_a_review_without_a_person_there_ends_with_status_1_and_the_command(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:pays")

    assert called.status == 1
    assert "it is unknown whether pay(amount=3) happened: the bank did not answer" in called.err
    assert "holdfast reviews resolve eff_" in called.err
    assert "needs_review" in called.err


def test_a_review_of_a_child_stops_its_parent_too(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:delegates", "--json")

    assert called.status == 1
    assert called.json["status"] == "waiting"
    assert "pay(amount=4)" in called.err


def test_a_command_that_is_shown_is_about_the_same_ledger(run: Run, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'a b.db'}"

    called = run("run", f"{SAMPLE_TASKS}:pays", "--store", store)

    assert f"--store '{store}'" in called.err


# --- mistakes


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("no_such_module:task", "no such module"),
        (f"{SAMPLE_TASKS}.deeper:task", "no such module"),
        (f"{SAMPLE_TASKS}:no_such_task", f"{SAMPLE_TASKS}:say"),
        (f"{SAMPLE_TASKS}:NOT_A_TASK", "decorate it with @hf.task"),
        (f"{SAMPLE_TASKS}:note", "decorate it with @hf.task"),
        (SAMPLE_TASKS, "name a task; choose from"),
        ("tests.builders:START", "it has no tasks"),
        ("no/such/file.py:task", "no such file"),
        (":task", "write a module"),
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(run: Run, home: Path, spec: str, said: str) -> None:
    called = run("run", spec)

    assert called.status == 2
    assert said in called.err
    assert called.err.count("\n") == 1
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--arg", "number=three"), "expected a whole number, got 'three'"),
        (("--arg", "share=much"), "expected a number"),
        (("--arg", "flag=perhaps"), "expected true or false"),
        (("--arg", "tags=[1"), "write it as JSON"),
        (("--arg", "tags=[1]"), "Expected `str`"),
        (("--arg", "colour=green"), "green"),
        (("--arg", "number"), "has no value"),
        (("--arg", "=3"), "has no value"),
        (("--arg", "nonsense=3"), "has no such parameter; its parameters are text, number"),
        (("--arg", "number=1", "--arg", "number=2"), "given twice"),
        (("--arg", "number=1", "--json-arg", "number=2"), "given twice"),
        (("--json-arg", "number={"), "invalid JSON"),
        (("--json-arg", "number=[]"), "Expected `int"),
        (("--arg", "share=nan"), "share"),
    ],
    ids=str,
)
def test_an_argument_that_does_not_fit_starts_nothing(
    run: Run, home: Path, arguments: tuple[str, ...], said: str
) -> None:
    called = run("run", f"{SAMPLE_TASKS}:echo", *arguments)

    assert called.status == 2
    assert said in called.err
    assert not home.exists()


def test_a_missing_argument_is_named_with_all_of_them(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:tally", "--arg", "to=3")

    assert called.status == 2
    assert "missing a required argument: 'marks'" in called.err
    assert "gate:" in called.err


def test_a_mistake_as_json_is_an_error_document(run: Run) -> None:
    assert run("run", f"{SAMPLE_TASKS}:nope", "--json").error["code"] == "bad_input"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_thing_at_all\n", "No module named 'no_such_thing_at_all'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "it exited during its import"),
        ("@hf.task\ndef t(run): ...\n", "write `async def`"),
        (
            "@hf.task\nasync def a(run): ...\n@hf.task(name='a')\nasync def b(run): ...\n",
            "two tasks are called 'a'",
        ),
    ],
    ids=["syntax", "import", "error", "exit", "not async", "twice"],
)
def test_a_module_that_cannot_be_imported_is_said_with_where(
    run: Run, tmp_path: Path, text: str, said: str
) -> None:
    path = write(tmp_path / "faulty.py", text)

    called = run("run", f"{path}:t")

    assert called.status == 2
    assert said in called.err
    assert "Traceback" not in called.err
    if said in ("SyntaxError", "ZeroDivisionError: division by zero"):
        assert f"{path}, line 2" in called.err


# --- programs and their arguments


def echoed(*arguments: str, as_json: tuple[str, ...] = ()) -> dict[str, object]:
    return read_arguments(load_program(SAMPLE_TASKS).find("echo"), arguments, as_json)


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=12", "12"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("number=-12", -12),
        ("share=1.5", 1.5),
        ("share=2", 2.0),
        ("flag=true", True),
        ("flag=False", False),
        ("flag=1", True),
        ('tags=["a", "b"]', ["a", "b"]),
        ("tags=null", None),
        ("anything=12", "12"),
    ],
)
def test_an_argument_is_read_by_its_annotation(pair: str, value: Any) -> None:
    assert list(echoed(pair).values()) == [value]


def test_an_enum_is_read_by_its_value(run: Run) -> None:
    called = run("run", f"{SAMPLE_TASKS}:echo", "--arg", "colour=blue", "--arg", "flag=true", "--json")

    assert called.json["result"]["colour"] == "blue"
    assert called.json["result"]["flag"] is True


def test_json_arguments_are_taken_as_they_are() -> None:
    assert echoed(as_json=("text=12", 'anything={"a": [1]}')) == {"text": 12, "anything": {"a": [1]}}


def test_an_annotation_that_only_the_type_checker_knows_leaves_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "later.py", "@hf.task\nasync def t(run, x: 'Unknown'): ...\n")

    assert read_arguments(load_program(str(path)).find("t"), ["x=1"], ()) == {"x": "1"}


def test_a_task_in_a_file_finds_the_modules_beside_it(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "there" / "beside_it.py", "@hf.task\nasync def helped(run) -> str: return 'hi'\n")
    path = write(
        tmp_path / "there" / "main_one.py",
        "import beside_it\n"
        "@hf.task\nasync def t(run) -> str: return await (await run.spawn(beside_it.helped()))\n",
    )

    # The child's task is in no name of the module itself, and is carried all the same.
    assert run("run", f"{path}:t").out == "hi\n"


def test_a_module_is_found_in_the_working_directory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "package_here" / "inner_one.py", "@hf.task\nasync def t(run) -> str: return 'here'\n")
    (tmp_path / "package_here" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)

    assert run("run", "package_here.inner_one:t").out == "here\n"
    assert run("run", "package_here/inner_one.py:t").out == "here\n"


@pytest.mark.parametrize(
    ("spec", "parts"),
    [("a.b:c", ("a.b", "c")), ("a", ("a", None)), ("a:", ("a", None)), ("x/y.py:t", ("x/y.py", "t"))],
)
def test_a_place_has_a_module_and_perhaps_a_task(spec: str, parts: tuple[str, str | None]) -> None:
    assert split_place(spec) == parts


def test_a_place_without_a_module_is_refused() -> None:
    with pytest.raises(BadInput):
        split_place(":task")


def test_the_program_runs_as_a_process_of_its_own(home: Path) -> None:
    called = run_process(home, "run", f"{SAMPLE_TASKS}:noisy", "--json")

    assert called.status == 0
    assert called.json["result"] == "quiet"
    assert "from a child" in called.err
