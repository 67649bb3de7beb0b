"""worker: its modules, the ledger that it can share, and the unit that keeps it running."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.app.worker_process import check_place, load_modules
from holdfast.config import read_settings
from holdfast.core.errors import BadInput, SettingsError
from holdfast.store import file_systems
from tests.doors.calls import Run

SAMPLE_TASKS = "tests.doors.sample_tasks"
ONE_TASK = """
import holdfast as hf

@hf.task(name="{name}")
async def count(run: hf.Run, item: dict) -> int:
    return 1
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def a_module(directory: Path, name: str, task: str) -> str:
    path = directory / f"{name}.py"
    path.write_text(ONE_TASK.format(name=task), encoding="utf-8")
    return str(path)


def test_the_tasks_of_several_modules_are_carried(tmp_path: Path) -> None:
    places = [a_module(tmp_path, "first_module", "one"), a_module(tmp_path, "second_module", "two")]

    assert set(load_modules(places)) == {"one", "two"}
    assert set(load_modules([*places, SAMPLE_TASKS], only=["two", "say"])) == {"two", "say"}


def test_one_task_of_a_module_can_be_named() -> None:
    assert set(load_modules([f"{SAMPLE_TASKS}:say"])) == {"say"}


def test_the_same_module_twice_is_the_same_module() -> None:
    assert "say" in load_modules([SAMPLE_TASKS, SAMPLE_TASKS])


def test_two_modules_with_a_task_of_one_name_are_refused_by_both_names(tmp_path: Path) -> None:
    places = [a_module(tmp_path, "first_module", "one"), a_module(tmp_path, "second_module", "one")]

    with pytest.raises(BadInput, match=r"second_module.*called 'one' than .*first_module") as refused:
        load_modules(places)
    assert "@hf.task(name=…)" in str(refused.value)


def test_a_module_without_tasks_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty_module.py"
    empty.write_text("", encoding="utf-8")

    with pytest.raises(BadInput, match=r"has no tasks; decorate"):
        load_modules([str(empty)])


def test_an_unknown_name_in_the_filter_lists_the_tasks(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no task 'three' in these modules; they have one"):
        load_modules([a_module(tmp_path, "first_module", "one")], only=["one", "three"])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "MODULE"),
        (("no.such.module",), 2, "no such module"),
        ((f"{SAMPLE_TASKS}:none",), 2, "there is no task 'none'"),
        ((SAMPLE_TASKS, "--capacity", "0"), 2, "capacity"),
        ((SAMPLE_TASKS, "--drain-timeout", "soon"), 2, "--drain-timeout"),
        ((SAMPLE_TASKS, "--tasks", "say,"), 2, "separated by commas"),
        ((SAMPLE_TASKS, "--store", "memory:"), 78, "in-memory ledger"),
        ((SAMPLE_TASKS, "--store", "postgresql://127.0.0.1:1/x"), 1, "check that it runs, and its address"),
    ],
)
def test_what_must_be_fixed_first_is_said(
    run: Run, arguments: tuple[str, ...], status: int, said: str
) -> None:
    called = run("worker", *arguments)

    assert called.status == status
    assert said in called.err
    assert called.out == ""


def test_a_remote_gateway_has_its_ledger_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1")

    assert run("worker", SAMPLE_TASKS).status == 3


def test_a_file_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 1 {os.major(device)}:{os.minor(device)} / /data rw - nfs4 server:/data rw\n", encoding="utf-8"
    )
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    settings = read_settings({}, store=f"sqlite:///{tmp_path}/not/yet/ledger.db", home=str(tmp_path))

    with pytest.raises(SettingsError, match=r"network file system \(nfs4\).*PostgreSQL"):
        check_place(settings)


def test_a_file_on_a_local_disk_is_accepted(tmp_path: Path) -> None:
    check_place(read_settings({}, store=f"sqlite:///{tmp_path}/ledger.db", home=str(tmp_path)))


def test_the_unit_repeats_the_command_line(run: Run, home: Path) -> None:
    called = run("worker", SAMPLE_TASKS, "--capacity", "7", "--tasks", "say", "--unit", "--user", "ada")

    lines = called.out.splitlines()
    assert called.status == 0
    assert f"ExecStart={sys.executable} -m holdfast worker {SAMPLE_TASKS} --tasks say --capacity 7" in lines
    assert {"Type=notify", "User=ada", "RestartPreventExitStatus=0 2 78"} <= set(lines)
    assert f"WorkingDirectory={Path.cwd()}" in lines
    assert f"Environment=HOLDFAST_HOME={home}" in lines
    assert not home.exists()


def test_the_unit_holds_no_password(run: Run) -> None:
    url = "postgresql://ada:s3cr3t-c4n4ry@ledger.example/holdfast"
    called = run("worker", SAMPLE_TASKS, "--store", url, "--unit", "--json")

    assert "s3cr3t-c4n4ry" not in called.out + called.err
    assert called.json["kind"] == "systemd"
    assert "HOLDFAST_STORE=…" in called.err
