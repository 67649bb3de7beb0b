"""`holdfast up` in a directory full of planted modules: none of them is imported, whatever its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.config.files import load
from holdfast.core.errors import SettingsError
from tests.doors.calls import environment, run_process
from tests.doors.terminals import PATIENCE_S

pytestmark = pytest.mark.slow

# Of Python itself, of what is installed, of what is not, and of us.
PLANTED = (
    *("sitecustomize", "usercustomize", "json", "logging", "typing_extensions", "_typeshed"),
    *("apsw", "msgspec", "uvicorn", "click", "cronsim", "apprise", "yaml", "pydantic_ai", "psycopg"),
    *("uvloop", "httptools", "wsproto", "dotenv", "psycopg_pool", "psycopg_binary", "psycopg_c", "colorama"),
    *("simplejson", "orjson", "brotli", "zstandard", "cchardet", "chardet", "h2", "socks", "logfire"),
    # What a gateway looks for and does not find on Linux.
    *("a2wsgi", "multipart", "python_multipart", "snappy", "sniffio", "watchfiles"),
    *("holdfast", "holdfast_plugin"),
)
# Importing it leaves a mark, and looks as if an optional module were missing.
PLANT = """
import os
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as file:
    file.write(__name__ + "\\n")
raise ImportError("planted")
"""
ANSWER = "def answer(text: str) -> str:\n    return '{name} heard ' + text\n"
SCRIPT = Path(sys.executable).with_name("holdfast")


def plant(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in PLANTED:
        (directory / f"{name}.py").write_text(PLANT)
    return directory


def imported(directory: Path) -> list[str]:
    mark = directory / "imported"
    return mark.read_text().split() if mark.exists() else []


@contextmanager
def up(
    home: Path, directory: Path, command: tuple[str, ...] = (str(SCRIPT),), **environ: str
) -> Iterator[None]:
    """Started there, and serving; stopped at the end."""
    with (
        (home / "up.log").open("w") as log,
        subprocess.Popen(
            [*command, "up", "--json", "--port", "0"],
            env=environment(home, **environ),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (home / "up.log").read_text()
            json.loads(line)
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


def settle(home: Path, settings: Mapping[str, object]) -> None:
    (home / "holdfast.json").write_text(json.dumps(settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [(str(SCRIPT),), (sys.executable, "-P", "-m", "holdfast")],
    ids=["console script", "python -P -m"],
)
def test_nothing_that_lies_where_it_is_started_is_imported_by_it(
    home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """With a restart, which tries out the next gateway, an alert, an answer of each kind of agent, and a
    part of PYTHONPATH that means the working directory for the gateway."""
    directory, named = plant(tmp_path / "work"), tmp_path / "named"
    named.mkdir()
    (named / "far_agent.py").write_text(ANSWER.format(name="far"))
    (home / "near_agent.py").write_text(ANSWER.format(name="near"))
    settle(
        home,
        {
            "agents": {
                "near": {"callable": "near_agent:answer"},
                "far": {"callable": "far_agent:answer"},
                "told": {"command": [sys.executable, "-c", "import apsw; print('told')"]},
            },
            "gateway": {"python_path": [str(named)], "alert_urls": ["json://127.0.0.1:9/"]},
        },
    )

    with up(home, directory, command):
        answers = [run_process(home, "chat", name, "-m", "hello") for name in ("near", "far", "told")]
        restarted = run_process(home, "gateway", "restart", "--force", "--json")

    assert restarted.status == 0, restarted.err
    assert [one.out.split("\n")[0] for one in answers] == ["near heard hello", "far heard hello", "told"]
    assert imported(directory) == []


@pytest.mark.slow
def test_a_part_of_pythonpath_that_means_the_working_directory_is_not_handed_to_the_gateway(
    home: Path, tmp_path: Path
) -> None:
    """Python itself reads it before `holdfast up` can say anything; the gateway is free of it."""
    directory, named = tmp_path / "work", tmp_path / "named"
    directory.mkdir()
    named.mkdir()
    (named / "far_agent.py").write_text(ANSWER.format(name="far"))
    (home / "look_agent.py").write_text(
        "import os, sys, far_agent\n"
        "def answer(text: str) -> str:\n"
        '    return f\'{os.getcwd() in sys.path or "" in sys.path} {os.environ["PYTHONPATH"]}\'\n'
    )
    settle(home, {"agents": {"look": {"callable": "look_agent:answer"}}})

    with up(home, directory, PYTHONPATH=os.pathsep.join(["", ".", str(named)])):
        answer = run_process(home, "chat", "look", "-m", "hello")

    assert f"False {named}" in answer.out


@pytest.mark.slow
def test_python_m_imports_from_the_working_directory_only_what_python_itself_does(
    home: Path, tmp_path: Path
) -> None:
    """It has run `holdfast` before we can say anything; a planted `holdfast` there is what was asked for."""
    directory = plant(tmp_path / "work")
    for name in ("holdfast", "json", "logging"):  # which Python looks for before our first line
        (directory / f"{name}.py").unlink()

    with up(home, directory, (sys.executable, "-m", "holdfast")):
        pass

    assert imported(directory) == []


def test_a_task_of_the_settings_is_not_found_in_the_working_directory(home: Path, tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "errand.py").write_text(PLANT)
    settle(home, {"tasks": ["errand"]})

    done = subprocess.run(
        [str(SCRIPT), "gateway", "child", "--trial"],
        env=environment(home),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 78
    assert "no such module in the home, in gateway.python_path or among the installed packages" in done.stderr
    assert imported(directory) == []


def test_config_check_looks_where_the_gateway_looks(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    for directory in (named, tmp_path / "work"):
        directory.mkdir()
    (named / "far_agent.py").write_text(ANSWER.format(name="far"))
    (tmp_path / "work" / "near_agent.py").write_text(ANSWER.format(name="near"))
    monkeypatch.chdir(tmp_path / "work")
    agents = {name: {"callable": f"{name}_agent:answer"} for name in ("near", "far")}
    settle(home, {"agents": agents, "gateway": {"python_path": ["../named"]}})

    found = run_process(home, "config", "check", "--json")

    checks = {one["name"]: one for one in found.json["checks"]}
    assert "far_agent:answer exists" in json.dumps(checks["agents.far"])
    assert "add its directory to gateway.python_path" in json.dumps(checks["agents.near"])


# --- the directories that are named


@pytest.mark.parametrize(
    ("place", "expected"),
    [("nowhere", "create it, or name another directory"), ("a_file", "it is not a directory")],
)
def test_a_directory_that_is_none_is_refused(home: Path, place: str, expected: str) -> None:
    (home / "a_file").touch()
    settle(home, {"gateway": {"python_path": [place]}})

    assert_trial_refused(home, f"gateway.python_path names '{place}': ", expected)


def test_modules_that_others_can_write_are_not_imported(home: Path) -> None:
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    settle(home, {"gateway": {"python_path": ["open"]}})

    assert_trial_refused(home, "whose modules are not imported", f"chmod go-w {home / 'open'}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_modules_of_another_user_are_not_imported(home: Path) -> None:
    (home / "theirs").mkdir()
    os.chown(home / "theirs", 12345, -1)
    settle(home, {"gateway": {"python_path": ["theirs"]}})

    assert_trial_refused(home, "whose modules are not imported", f"chown root {home / 'theirs'}")


@pytest.mark.parametrize("place", ["", " ", "~nosuchuser/x", "a\0b"])
def test_a_path_that_is_none_is_refused_with_the_key(home: Path, place: str) -> None:
    settle(home, {"gateway": {"python_path": [place]}})

    with pytest.raises(SettingsError, match=r"gateway\.python_path"):
        load(home, {})


def assert_trial_refused(home: Path, *expected: str) -> None:
    done = run_process(home, "gateway", "child", "--trial")

    assert done.status == 78
    assert [one for one in expected if one not in done.err] == []


# --- what is named on the command line


ERRAND = (
    "import holdfast as hf\n\n@hf.task\nasync def greet(run: hf.Run) -> str:\n    return 'hello from here'\n"
)


@pytest.mark.parametrize(
    "command", [(str(SCRIPT),), (sys.executable, "-m", "holdfast")], ids=["console script", "python -m"]
)
def test_run_finds_the_module_that_its_user_named_in_the_working_directory(
    home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "errand.py").write_text(ERRAND)

    done = subprocess.run(
        [*command, "run", "errand:greet"],
        env=environment(home),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "hello from here")
