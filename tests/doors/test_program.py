"""The program as a whole: options everywhere, exit statuses, pipes, colours, interrupts."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import click
import pytest

from holdfast import __version__
from holdfast.cli import main as program_module
from holdfast.cli.errors import exit_status
from holdfast.cli.groups import ListGroup
from holdfast.cli.main import COMMANDS, program
from holdfast.core import errors
from holdfast.core.events import EventKind
from holdfast.core.transitions import RunStatus
from holdfast.store.locks import HomeLock
from tests.builders import START, stored_run
from tests.doors.calls import PROGRAM, Opens, Run, environment, run_process

pytestmark = pytest.mark.slow

ESCAPE = "\x1b["


def groups() -> dict[str, click.Group]:
    context = click.Context(program)
    commands = {name: program.get_command(context, name) for name in COMMANDS}
    return {name: one for name, one in commands.items() if isinstance(one, click.Group)}


def test_the_help_lists_every_command_with_its_own_first_line() -> None:
    context = click.Context(program)
    for name, (_, line) in COMMANDS.items():
        command = program.get_command(context, name)

        assert command is not None
        assert command.name == name
        assert line


def test_the_line_of_each_group_lists_its_commands_in_their_order() -> None:
    listed = {name: COMMANDS[name][1].rpartition(": ")[2].rstrip(".").split(", ") for name in groups()}

    assert listed == {name: one.list_commands(click.Context(one)) for name, one in groups().items()}


def test_the_help_of_each_group_with_a_list_says_that_it_lists_without_a_command() -> None:
    lists = [one for one in groups().values() if isinstance(one, ListGroup)]

    assert [one.name for one in lists if "Without a command: list." not in (one.help or "")] == []
    assert len(lists) > 10


def test_help_and_guide_agree_on_status_5(run: Run) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/operate.md").read_text(encoding="utf-8")

    assert "5 gateway not reachable or home in use" in " ".join(run("--help").out.split())
    assert "| 5 | no gateway can be reached, or another process holds the home |" in guide


def test_help_needs_no_command_to_be_imported(home: Path) -> None:
    called = run_process(home, "--help")

    assert called.status == 0
    assert all(name in called.out for name in COMMANDS)


@pytest.mark.parametrize("arguments", [(), ("gateway",), ("store",)], ids=str)
def test_a_group_alone_shows_its_help_and_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    called = run(*arguments)

    assert called.status == 2
    assert "Commands:" in called.err
    assert called.out == ""


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"holdfast, version {__version__}\n".replace(", version", "")
    assert run("version").out.startswith(f"holdfast {__version__} (Python ")
    assert run("version", "--json").json["holdfast"] == __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ("--home", "HERE", "--json", "tasks", "list"),
        ("tasks", "--home", "HERE", "--json", "list"),
        ("tasks", "list", "--home", "HERE", "--json"),
    ],
    ids=["before", "between", "after"],
)
def test_home_and_json_are_understood_anywhere(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    with ledger() as store:
        stored_run(store)
    monkeypatch.setenv("HOLDFAST_HOME", "/nowhere")

    called = run(*(str(home) if word == "HERE" else word for word in arguments))

    assert len(called.json["tasks"]) == 1


def test_the_store_may_be_named_in_the_environment_and_the_command_line_wins(
    run: Run, ledger: Opens, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger() as store:
        stored_run(store)
    there = f"sqlite:///{home / 'ledger.db'}"
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "other"))

    monkeypatch.setenv("HOLDFAST_STORE", there)
    assert len(run("tasks", "list", "--json").json["tasks"]) == 1
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{tmp_path / 'empty.db'}")
    assert run("tasks", "list", "--json").json["tasks"] == []
    assert len(run("tasks", "list", "--json", "--store", there).json["tasks"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("task", "list"), "No such command 'task'. Did you mean 'tasks'? (see `holdfast --help`)"),
        (("gateway", "restrat"), "Did you mean 'restart'? (see `holdfast gateway --help`)"),
        (("nonsense",), "No such command 'nonsense'. (see `holdfast --help`)"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_closest_one(
    run: Run, arguments: tuple[str, ...], says: str
) -> None:
    called = run(*arguments)

    assert (called.status, says in called.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("nonsense",), 2),
        (("tasks", "list", "--status", "nonsense"), 2),
        (("tasks", "list", "--limit", "0"), 2),
        (("tasks", "show"), 2),
        (("checkpoints", "prune", "--older-than", "soon"), 2),
        (("events", "--after", "nonsense"), 2),
        (("--store", "mysql://u:p@h/d", "tasks", "list"), 2),
        (("tasks", "show", "task_0"), 4),
        (("checkpoints", "show", "ckpt_0"), 4),
        (("reviews", "show", "eff_0"), 4),
        (("reviews", "list", "--limit", "0"), 2),
        (("questions", "answer", "ques_0", "yes"), 4),
        (("tasks", "wait", "task_0"), 4),
        (("run", "no_such_module:task"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_mistake_is_one_line_and_one_status(run: Run, arguments: tuple[str, ...], status: int) -> None:
    called = run(*arguments)

    assert called.status == status
    assert called.out == ""
    assert called.err.startswith("holdfast: ")
    assert called.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("tasks", "show", "task_0", "--json"), "no_ledger"),
        (("--json", "nonsense"), "usage"),
        (("tasks", "list", "--json", "--status", "nonsense"), "usage"),
        (("--store", "ftp://x", "doctor", "--json"), "settings_error"),
    ],
)
def test_with_json_an_error_is_one_document_on_stdout(
    run: Run, arguments: tuple[str, ...], code: str
) -> None:
    called = run(*arguments)

    assert called.error["code"] == code
    assert called.error["message"] in called.err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.NotFound("task", "x"), 4),
        (errors.NoLedger("x"), 4),
        (errors.FeedGap("0.1", "0.2"), 4),
        (errors.AmbiguousId("task", "x", ["a", "b"]), 2),
        (errors.BadInput("x", "y"), 2),
        (errors.SettingsError("x"), 2),
        (errors.IllegalMove("task", "x", "a", "b"), 3),
        (errors.ResumesHeld("x"), 3),
        (errors.HomeInUse(home="x", pid=1), 5),
        (errors.StoreUnavailable("x"), 1),
        (errors.SchemaMismatch("x"), 1),
        (errors.RowDamaged("task", "x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_status(error: errors.HoldfastError, status: int) -> None:
    assert exit_status(error) == status


def test_an_error_of_the_system_is_one_line_too(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "ledger.db").symlink_to(home / "ledger.db")

    called = run("tasks", "list")

    assert called.status in {1, 2}
    assert called.err.startswith("holdfast: ")
    assert "Traceback" not in called.err


def test_a_mistake_of_ours_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(program_module.program, "invoke", broken)

    with pytest.raises(ZeroDivisionError):
        run("version")


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "cancel", "task_0"),
        ("checkpoints", "retry", "ckpt_0"),
        ("checkpoints", "prune"),
        ("reviews", "resolve", "eff_0", "done"),
        ("questions", "answer", "ques_0", "yes"),
        ("run", "tests.doors.sample_tasks:nothing", "--detach"),
        ("store", "migrate"),
        ("store", "accept"),
    ],
    ids=" ".join,
)
def test_a_write_beside_another_holder_ends_with_status_5_and_its_pid(
    run: Run, ledger: Opens, home: Path, arguments: tuple[str, ...]
) -> None:
    with ledger():
        pass
    lock = HomeLock.take(home, role="gateway")
    try:
        called = run(*arguments)
    finally:
        lock.release()

    assert called.status == 5
    assert f"process {os.getpid()} holds" in called.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "list"),
        ("checkpoints", "list"),
        ("checkpoints", "prune", "--dry-run"),
        ("reviews", "list"),
        ("questions", "list"),
        ("events",),
        ("doctor",),
        ("store", "verify"),
    ],
    ids=" ".join,
)
def test_reads_go_on_beside_another_holder(
    run: Run, ledger: Opens, home: Path, arguments: tuple[str, ...]
) -> None:
    with ledger() as store:
        stored_run(store)
        lock = HomeLock.take(home, role="gateway")
        try:
            called = run(*arguments)
        finally:
            lock.release()

    assert called.status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "list"),
        ("reviews", "list"),
        ("questions", "list"),
        ("checkpoints", "list"),
        ("checkpoints", "prune"),
        ("events",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_looking_into_an_empty_home_says_so_and_makes_nothing(
    run: Run, home: Path, arguments: tuple[str, ...]
) -> None:
    called = run(*arguments)

    assert called.status == 0
    assert "no ledger at" in called.err + called.out
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "show", "task_0"),
        ("tasks", "cancel", "task_0"),
        ("tasks", "wait", "task_0"),
        ("reviews", "show", "eff_0"),
        ("reviews", "resolve", "eff_0", "done"),
        ("questions", "answer", "ques_0", "yes"),
        ("checkpoints", "retry", "ckpt_0"),
        ("store", "verify"),
        ("store", "accept"),
        ("store", "backup", "copy.db"),
        ("events", "--follow"),
    ],
    ids=" ".join,
)
def test_asking_an_empty_home_for_something_ends_with_status_4_and_makes_nothing(
    run: Run, home: Path, arguments: tuple[str, ...]
) -> None:
    called = run(*arguments)

    assert called.status == 4
    assert not home.exists()


def test_a_ledger_elsewhere_is_no_reason_to_make_a_home(
    run: Run, ledger: Opens, home: Path, tmp_path: Path
) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    other = tmp_path / "other"
    store_url = f"sqlite:///{home / 'ledger.db'}"

    called = run("--home", str(other), "--store", store_url, "tasks", "cancel", task_id)

    assert called.status == 0
    assert not other.exists()


# --- as other processes see it


def test_data_goes_to_stdout_and_remarks_to_stderr(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    called = run_process(home, "tasks", "list")

    assert called.out.count("\n") == 2
    assert called.err == "1 of 1 task: 1 queued\n"


def test_a_reader_that_stops_reading_stops_us_quietly(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        for _ in range(300):
            stored_run(store, task={"goal": "tides " * 300})
    process = subprocess.Popen(
        [*PROGRAM, "tasks", "list", "--json", "--limit", "300"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.read(10)
    process.stdout.close()

    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=30) == 141


def test_ctrl_c_ends_quietly_with_status_130(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    process = subprocess.Popen(
        [*PROGRAM, "events", "--follow", "--json"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with ledger() as store:
        run = stored_run(store)
        store.write_now(lambda tx: tx.emit(EventKind.RUN_WOKEN, run.id, at=START, task_id=run.task_id))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()


def in_terminal(home: Path, *arguments: str, **environ: str) -> str:
    """What a person sees: both streams are one terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env=environment(home, TERM="xterm", COLUMNS="90", **environ),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return shown.decode()


def test_a_terminal_gets_colour_and_lines_that_fit(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.FAILED, task={"goal": "tides " * 100})

    shown = in_terminal(home, "tasks", "list")

    assert f"{ESCAPE}31mfailed" in shown
    assert "…" in shown
    assert max(len(line) for line in shown.split("\r\n")) < 120


def test_no_color_means_none(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    assert ESCAPE not in in_terminal(home, "tasks", "list", NO_COLOR="1")


def test_a_pipe_gets_no_colour(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    assert ESCAPE not in run_process(home, "tasks", "list").out


def test_a_terminal_shows_that_long_work_goes_on(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    assert "no damage: 2 rows read" in in_terminal(home, "store", "verify")


def test_a_locale_that_cannot_say_it_gets_it_spelled_out(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, task={"goal": "Ebbe und Flut — für München"})

    called = run_process(home, "tasks", "list", PYTHONIOENCODING="ascii")

    assert called.status == 0
    assert "\\u2014 f\\xfcr" in called.out
    assert run_process(home, "tasks", "list", "--json", PYTHONIOENCODING="ascii").json["tasks"][0][
        "goal"
    ] == ("Ebbe und Flut — für München")


def test_the_console_script_is_the_same_program(home: Path) -> None:
    script = Path(PROGRAM[0]).parent / "holdfast"

    done = subprocess.run([script, "version"], env=environment(home), capture_output=True, check=True)

    assert done.stdout.decode().startswith(f"holdfast {__version__}")


def test_the_shell_can_complete_our_commands(home: Path) -> None:
    called = run_process(home, COMP_WORDS="holdfast che", COMP_CWORD="1", _HOLDFAST_COMPLETE="bash_complete")

    assert "checkpoints" in called.out
