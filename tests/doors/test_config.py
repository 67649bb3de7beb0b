"""config check and config explain: what is set, where it comes from, and what is missing on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.config.alerts import default_alerts
from holdfast.config.keys import KEYS
from tests.config.homes import EVERY_KEY, write
from tests.doors.calls import HOSTILE, UNFIT, Run, run_process


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)


def checks(run: Run) -> dict[str, Any]:
    return {check["name"]: check for check in run("config", "check", "--json").json["checks"]}


# --- check


def test_a_home_without_settings_is_well(run: Run, home: Path) -> None:
    called = run("config", "check")

    assert called.status == 0
    assert called.err == "no problems found\n"
    assert "none: every setting has its default" in called.out
    assert not home.exists()


def test_what_was_read_and_what_it_names_is_shown(run: Run, home: Path) -> None:
    (home / "work").mkdir(parents=True)
    agents = {"main": {"command": ["cat"], "directory": "work"}, "sage": {"callable": "json:dumps"}}
    schedule = {"cron": "0 3 * * *", "tz": "Europe/Berlin", "agent": "main", "prompt": "x"}
    main = {
        "tasks": ["json"],
        "gateway": {"alert_urls": ["https://alerts.example/holdfast", "json://alerts.example"]},
        "schedules": {"night": schedule, "off": schedule | {"is_enabled": False}},
        "channels": {"mail": {"kind": "apprise", "urls": ["json://x"]}},
    }
    documents = [write(home, "holdfast.toml", main), write(home, "config/agents.yaml", agents)]

    called = run("config", "check", "--json")

    assert called.status == 0
    assert called.json["documents"] == [str(path) for path in documents]
    found = {check["name"]: check["message"] for check in called.json["checks"]}
    assert found["agents.main"] == "the command cat"
    assert found["agents.sage"] == "json:dumps exists"
    assert found["schedules.night"].endswith("03:00 Europe/Berlin, for main")
    assert found["schedules.off"] == "off"
    assert found["channels.mail"] == "apprise knows every service"
    assert found["gateway.alert_urls"] == "apprise knows every service"
    assert {check["verdict"] for check in called.json["checks"]} == {"ok"}


@pytest.mark.parametrize(
    ("document", "name", "says"),
    [
        ({"tasks": ["nonesuch.tasks"]}, "tasks", "no module 'nonesuch'"),
        ({"agents": {"a": {"callable": "nonesuch:f"}}}, "agents.a", "no module 'nonesuch'"),
        ({"agents": {"a": {"command": ["nonesuch"]}}}, "agents.a", "program 'nonesuch' not found"),
        ({"agents": {"a": {"command": ["./nonesuch"]}}}, "agents.a", "program './nonesuch' not found"),
        ({"agents": {"a": {"command": ["cat"], "directory": "gone"}}}, "agents.a", "there is no directory"),
        (
            {"agents": {"a": {"command": ["cat"], "env": {"A": "NOT_SET"}}}},
            "agents.a",
            "the environment variable NOT_SET",
        ),
        (
            {"channels": {"c": {"kind": "webhook", "secret_env": "NOT_SET", "url": "http://x"}}},
            "channels.c",
            "which is empty",
        ),
        (
            {"channels": {"c": {"kind": "apprise", "urls": ["json://x", "nonesuch://hunter2"]}}},
            "channels.c",
            "channels.c.urls: apprise does not know the service of the second URL",
        ),
        ({"tokens": {"t": {"token_env": "NOT_SET"}}}, "tokens.t", "is not a token of 32 to 512"),
        ({"tokens": {"t": {"token_file": "gone"}}}, "tokens.t", "which does not exist"),
        (
            {"gateway": {"alert_urls": ["nonesuch://hunter2"]}},
            "gateway.alert_urls",
            "gateway.alert_urls: apprise does not know the service of the first URL",
        ),
    ],
)
def test_what_this_machine_does_not_have_is_a_failure_with_its_remedy(
    run: Run, home: Path, document: dict[str, Any], name: str, says: str
) -> None:
    write(home, "holdfast.toml", document)

    found = checks(run)[name]

    assert found["verdict"] == "fail"
    assert says in found["message"]
    assert found["remedy"]
    called = run("config", "check")
    assert called.status == 1
    assert "hunter2" not in called.out + called.err


MODULE = """
import os.path as paths
try:
    from json import loads
except ImportError:
    loads = None
first, (second, third) = 1, (2, 3)
class Agents:
    one = 1
"""


@pytest.mark.parametrize("name", ["paths", "loads", "first", "third", "Agents.one"])
def test_a_module_in_the_home_is_looked_into_and_not_imported(run: Run, home: Path, name: str) -> None:
    """From wherever the command is given, as the gateway finds it."""
    write(home, "shelf/garden.py", MODULE + "raise SystemExit('imported')")
    write(home, "holdfast.toml", {"agents": {"a": {"callable": f"shelf.garden:{name}"}}})

    assert checks(run)["agents.a"] == {
        "name": "agents.a",
        "verdict": "ok",
        "message": f"shelf.garden:{name} exists",
        "remedy": None,
    }


@pytest.mark.parametrize(
    ("source", "callable_", "says"),
    [
        (MODULE, "garden:nothere", "garden has no 'nothere'"),
        (MODULE, "garden.inner:x", "garden is not a package"),
        ("def x(:\n", "garden:x", "garden.py:1 cannot be parsed, invalid syntax"),
        ("\0", "garden:x", "cannot be parsed"),
    ],
)
def test_a_module_that_could_not_be_imported_is_a_failure(
    run: Run, home: Path, source: str, callable_: str, says: str
) -> None:
    write(home, "garden.py", source)
    write(home, "holdfast.toml", {"agents": {"a": {"callable": callable_}}})

    found = checks(run)["agents.a"]

    assert (found["verdict"], says in found["message"]) == ("fail", True), found
    assert found["remedy"]


def test_a_program_beside_the_agent_is_found_where_it_works(run: Run, home: Path) -> None:
    program = write(home, "work/agent.sh", "#!/bin/sh\ncat\n")
    program.chmod(0o700)
    write(home, "holdfast.toml", {"agents": {"a": {"command": ["./agent.sh"], "directory": "work"}}})

    assert checks(run)["agents.a"]["verdict"] == "ok"


def test_settings_that_cannot_be_read_end_with_the_key_the_value_and_the_fix(run: Run, home: Path) -> None:
    path = write(home, "holdfast.toml", "[gateway]\nport = 'x'")

    called = run("config", "check", "--json")

    assert called.status == 2
    assert called.error["code"] == "settings_error"
    assert called.error["message"] == f"gateway.port in {path}, line 2, is 'x': a whole number is needed"


def test_a_token_that_others_may_read_is_a_failure(run: Run, home: Path) -> None:
    write(home, "token", "x" * 40).chmod(0o644)

    assert checks(run)["token"]["verdict"] == "fail"

    (home / "token").chmod(0o600)
    assert checks(run)["token"] == {
        "name": "token",
        "verdict": "ok",
        "message": "only its owner can read it",
        "remedy": None,
    }


def test_a_document_that_anyone_may_write_is_a_failure(run: Run, home: Path) -> None:
    path = write(home, "holdfast.toml", "")
    path.chmod(0o666)

    called = run("config", "check")

    assert called.status == 2
    assert f"can be written by any user (mode 0666): chmod go-w {path}" in called.err


def test_an_address_that_others_can_reach_is_a_warning(run: Run, home: Path) -> None:
    write(home, "holdfast.toml", {"gateway": {"host": "0.0.0.0"}})

    called = run("config", "check")

    assert called.status == 0
    assert "can be reached from other machines" in called.out
    assert called.err == "1 problem found\n"


# --- explain


def test_every_key_is_explained(run: Run, home: Path) -> None:
    path = write(home, "holdfast.toml", {"gateway": {"port": 4700}})

    settings = run("config", "explain", "--json").json["settings"]

    # The default rules of alerts have names.
    rules = [key.name for key in KEYS if key.name.startswith("alerts.")]
    shown = [one["key"] for one in settings if not one["key"].startswith("alerts.")]
    assert shown == [key.name for key in KEYS if key.name not in rules]
    assert [one["key"] for one in settings if one["key"].startswith("alerts.")] == [
        rule.replace("*", name) for name in default_alerts() for rule in rules
    ]
    assert [one["key"] for one in settings if one["source"] == str(path)] == ["gateway.port"]


def test_one_key_is_explained_with_its_value_source_default_and_what_a_change_needs(
    run: Run, home: Path
) -> None:
    path = write(home, "holdfast.toml", {"gateway": {"restart": {"sessionRecovery": False}}})

    called = run("config", "explain", "gateway.restart.sessionRecovery")

    lines = dict(line.split(maxsplit=1) for line in called.out.splitlines())
    assert lines["key"] == "gateway.restart.session_recovery"
    assert lines["value"] == "false"
    assert lines["source"] == str(path)
    assert lines["default"] == "true"
    assert lines["change"].startswith("live")


@pytest.mark.parametrize("spelling", ["gateway.restart.drain_timeout_s", "gateway.restart.drainTimeoutS"])
def test_a_key_may_be_asked_for_in_either_spelling(run: Run, spelling: str) -> None:
    (found,) = run("config", "explain", spelling, "--json").json["settings"]

    assert (found["value"], found["source"], found["applies"]) == (90.0, "default", "live")


def test_a_part_is_explained_whole(run: Run, home: Path) -> None:
    write(home, "holdfast.toml", EVERY_KEY)

    settings = run("config", "explain", "agents.Scout_2", "--json").json["settings"]

    assert {one["key"].rpartition(".")[0] for one in settings} == {"agents.Scout_2"}
    assert run("config", "explain", "gateway.restart").out.count("\n") == 10


def test_the_environment_and_the_command_line_are_sources(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "memory:")
    (by_environ,) = run("config", "explain", "store.url", "--json").json["settings"]
    (by_line,) = run("config", "explain", "store.url", "--store", "sqlite:///x.db", "--json").json["settings"]

    assert (by_environ["value"], by_environ["source"]) == ("memory:", "HOLDFAST_STORE")
    assert (by_line["value"], by_line["source"]) == ("sqlite:///x.db", "the command line")


@pytest.mark.parametrize(("program", "verdict"), [("cat", "ok"), ("no-such-program", "fail")])
def test_a_command_for_the_key_is_looked_for_and_not_started(
    run: Run, home: Path, program: str, verdict: str
) -> None:
    write(home, "holdfast.toml", {"store": {"key_command": [program, "/no/such/key"]}})

    checks = {one["name"]: one for one in run("config", "check", "--json").json["checks"]}

    assert checks["store.key_command"]["verdict"] == verdict


def test_the_short_form_of_the_store_is_explained_with_what_belongs_to_it(run: Run, home: Path) -> None:
    write(home, "holdfast.toml", "store = 'sqlite:///x.db'")

    explained = {one["key"]: one for one in run("config", "explain", "store", "--json").json["settings"]}

    assert {key: one["value"] for key, one in explained.items()} == {
        "store.url": "sqlite:///x.db",
        "store.seal": "secrets",
        "store.key_command": [],
        "store.keep_results": 16384,
    }
    assert {one["applies"] for one in explained.values()} == {"restart"}


def test_no_secret_is_shown(run: Run, home: Path) -> None:
    document = {
        "store": "postgresql://ada:hunter2@h/d",
        "gateway": {"alert_urls": ["tgram://hunter2/1"]},
        "channels": {"mail": {"kind": "apprise", "urls": ["mailto://ada:hunter2@x.example"]}},
    }
    write(home, "holdfast.toml", document)

    for arguments in (("explain",), ("explain", "--json"), ("check",), ("check", "--json")):
        called = run("config", *arguments)
        assert "hunter2" not in called.out + called.err
    assert '["tgram://…"]' in run("config", "explain").out


def test_text_that_a_terminal_would_obey_is_not_shown(run: Run, home: Path) -> None:
    schedule = {"cron": "0 0 * * *", "agent": "a", "prompt": HOSTILE}
    write(
        home,
        "holdfast.json",
        {"agents": {"a": {"command": ["cat", HOSTILE.replace("\0", "")]}}, "schedules": {"s": schedule}},
    )

    for arguments in (("explain",), ("explain", "--json"), ("explain", "schedules.s.prompt")):
        called = run("config", *arguments)
        assert called.status == 0
        assert UNFIT.search(called.out) is None
    assert UNFIT.search(run("config", "explain", HOSTILE).err) is None


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("gateway.prot", "did you mean gateway.port?"),
        ("nonsense", "list all settings with `holdfast config explain`"),
        ("agents.nobody.of.that.name", "list all settings"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(run: Run, key: str, says: str) -> None:
    called = run("config", "explain", key)

    assert called.status == 2
    assert says in called.err


# --- the ledger that the settings name


def test_every_command_uses_the_ledger_that_the_settings_name(home: Path, tmp_path: Path) -> None:
    write(home, "holdfast.toml", {"store": "sqlite:///other/work.db"})
    (home / "other").mkdir()

    assert run_process(home, "store", "migrate").status == 0

    assert (home / "other" / "work.db").exists()
    assert not (home / "ledger.db").exists()
    assert run_process(home, "doctor", "--json").json["store"] == f"sqlite:///{home}/other/work.db"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("store = 1", "is neither a string nor a table"),
        ("store = 'x'", "write sqlite:x for a file"),
        ("store", "is not valid TOML"),
    ],
)
def test_a_ledger_that_cannot_be_named_stops_every_command(
    run: Run, home: Path, document: str, says: str
) -> None:
    path = write(home, "holdfast.toml", document)

    called = run("tasks", "list")

    assert called.status == 2
    assert str(path) in called.err
    assert says in called.err


def test_the_command_line_and_the_environment_need_no_document(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "holdfast.toml", "nonsense")

    assert run("tasks", "list", "--store", f"sqlite:///{home}/x.db").status == 0
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{home}/x.db")
    assert run("tasks", "list").status == 0
