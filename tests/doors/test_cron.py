"""cron: schedules are listed with their next and last firing."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.schedule_spec import ScheduleSpec
from holdfast.engine.schedules.changes import adding
from tests.builders import START, a_boot
from tests.doors.calls import Opens, Run

NIGHT = """
[agents.scholar]
command = ["true"]

[schedules.night]
cron = "30 3 * * *"
tz = "Europe/Berlin"
agent = "scholar"
prompt = "look at the tide"
"""


def declare(home: Path, text: str = NIGHT) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "holdfast.toml").write_text(text)


def test_schedules_of_the_settings_that_no_gateway_has_seen_are_named(
    run: Run, ledger: Opens, home: Path
) -> None:
    declare(home)
    with ledger():
        pass

    called = run("cron", "list")

    assert called.out == ""
    assert "in the settings, and not in the ledger yet: night; they begin with `holdfast up`" in called.err


def test_a_schedule_is_added_listed_changed_fired_and_removed(run: Run, ledger: Opens, home: Path) -> None:
    declare(home)
    with ledger():
        pass

    added = run("cron", "add", "tide", "--every", "15m", "--agent", "scholar", "--prompt", "look")
    assert (added.status, added.out.split(";")[0]) == (0, "tide is added")
    lines = run("cron", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "WHEN", "NEXT", "LAST", "FOR"]
    assert lines[1].split()[:3] == ["tide", "every", "15m"]

    edited = run("cron", "edit", "tide", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo", "--revision", "1")
    assert edited.out.startswith("tide is at revision 2")
    late = run("cron", "edit", "tide", "--every", "1h", "--revision", "1")
    assert late.status == 3
    assert "schedule tide is at revision 2, and this change was made for revision 1" in late.err

    shown = run("cron", "show", "tide", "--json").json
    assert (shown["id"], shown["enabled"], shown["configRevision"]) == ("tide", True, "2")
    assert shown["schedule"] == {"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"}
    assert shown["payload"] == {"kind": "agentTurn", "message": "look"}
    assert shown["sessionKey"] == "agent:scholar:cron-tide"

    assert run("cron", "pause", "tide").out == "tide is paused\n"
    assert run("cron", "list").out == ""
    assert "nextRunAtMs" not in run("cron", "list", "--all", "--json").json["jobs"][0]
    assert run("cron", "resume", "tide").out.startswith("tide is resumed; it fires next at ")

    first = run("cron", "run", "tide", "--request-id", "click", "--json").json
    again = run("cron", "run", "tide", "--request-id", "click", "--json").json
    assert (first["ran"], first["runId"]) == (True, again["runId"])
    (entry,) = run("cron", "history", "tide", "--json").json["entries"]
    assert (entry["cause"], entry["firingStatus"], entry["runId"]) == ("requested", "due", first["runId"])

    assert run("cron", "remove", "tide").out == "tide is removed\n"
    assert run("cron", "show", "tide").status == 4
    assert len(run("cron", "history", "tide", "--json").json["entries"]) == 1
    actions = [one["action"] for one in run("audit", "log", "--json").json["entries"]]
    assert {"cron.add", "cron.update", "cron.run", "cron.remove"} <= set(actions)


def test_the_hint_of_a_paused_schedule_names_the_home_of_the_call(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(home)
    with ledger():
        pass
    run("cron", "add", "tide", "--every", "15m", "--agent", "scholar", "--prompt", "look")
    run("cron", "pause", "tide")
    monkeypatch.delenv("HOLDFAST_HOME")

    edited = run("cron", "edit", "tide", "--every", "1h", "--home", str(home))

    assert edited.out.endswith(f"it is paused: `holdfast cron resume tide --home {home}`\n")


def test_an_edit_changes_and_drops_single_arguments(run: Run, ledger: Opens, home: Path) -> None:
    declare(home, 'tasks = ["tasks_of_cron:report"]\n[gateway]\npython_path = ["."]\n')
    (home / "tasks_of_cron.py").write_text(
        "import holdfast as hf\n\n\n@hf.task\nasync def report(run: hf.Run, a: str, b: int = 1): ...\n"
    )
    with ledger():
        pass
    options = ("--every", "1h", "--task", "tasks_of_cron:report")
    wrong = run("cron", "add", "r", *options, "--arg", "a=x", "--arg", "nope=3")
    assert wrong.status == 2
    assert "nope" in wrong.err
    assert run("cron", "add", "r", *options, "--arg", "a=x", "--json-arg", "b=2").status == 0

    def arguments() -> object:
        return run("cron", "show", "r", "--json").json["payload"]["arguments"]

    assert run("cron", "edit", "r", "--json-arg", "b=3").status == 0
    assert arguments() == {"a": "x", "b": 3}
    assert run("cron", "edit", "r", "--drop-arg", "b").status == 0
    assert arguments() == {"a": "x"}
    assert run("cron", "edit", "r", "--arg", "nope=3").status == 2
    assert run("cron", "edit", "r", "--drop-arg", "a").status == 2
    assert arguments() == {"a": "x"}
    shown = run("cron", "show", "r").out
    assert 'a = "x"' in shown


def test_plain_seconds_are_durations(run: Run, ledger: Opens, home: Path) -> None:
    declare(home)
    with ledger():
        pass

    assert run("cron", "add", "a", "--every", "90", "--jitter", "0", "--timeout", "5", "--", "du").status == 0

    shown = run("cron", "show", "a", "--json").json
    assert shown["schedule"]["everyMs"] == 90_000
    assert shown["payload"]["timeoutSeconds"] == 5.0


def test_a_schedule_without_its_agent_is_listed_shown_and_audited(
    run: Run, ledger: Opens, home: Path
) -> None:
    declare(home)
    spec = ScheduleSpec(every_s=3600, agent="idle", session="main", prompt="look")
    gateway = a_boot(role="gateway", task_names=("agent.scholar",))
    with ledger() as store:
        store.write_now(adding("tea", spec, owner="system", now=START, known={"agent.idle"}))
        store.write_now(lambda tx: tx.boots.begin(gateway))

    assert "tea does not fire: no gateway has agent idle" in run("cron", "list").err
    assert "no gateway has agent idle" in run("cron", "show", "tea").out
    findings = run("tasks", "audit", "--json").json["findings"]
    (found,) = [one for one in findings if one["code"] == "schedule_without_target"]
    assert found["evidence"]["schedule"] == "tea"


def test_an_empty_request_id_is_refused(run: Run, ledger: Opens, home: Path) -> None:
    declare(home)
    with ledger():
        pass
    run("cron", "add", "a", "--every", "5m", "--", "du")

    called = run("cron", "run", "a", "--request-id", "")

    assert called.status == 2
    assert "request-id" in called.err
    assert run("cron", "history", "a", "--json").json["entries"] == []


def test_a_schedule_is_shown_in_full_without_its_secrets(run: Run, ledger: Opens, home: Path) -> None:
    declare(home)
    with ledger():
        pass
    secret = "sk-ant-api03-" + "a1B2" * 22
    words = ("--", "sh", "-c", f"curl -H 'Authorization: Bearer {secret}' https://x")
    run("cron", "add", "a", "--every", "5m", "--timeout", "90s", "--directory", f"/srv/{secret}", *words)
    run("cron", "add", "b", "--every", "5m", "--agent", "scholar", "--prompt", "look", "--missed", "all")

    shown = run("cron", "show", "a").out
    as_json = run("cron", "show", "a", "--json").out + run("cron", "list", "--json").out
    prompt = run("cron", "show", "b").out

    assert secret not in shown + as_json
    for told in ("curl -H", "/srv/", "90s"):
        assert told in shown
    assert "agent:scholar:cron-b" in prompt
    assert "all, at most 10" in prompt


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (
            ["--cron", "61 * * * *"],
            2,
            "cron: bad minute; write minute, hour, day, month, weekday, such as 0 9",
        ),
        (["--cron", "0 0 30 2 *"], 2, "such as 0 9 * * mon-fri"),
        (["--cron", "0 9 * * *", "--tz", "Mars/Olympus"], 2, "tz: name a time zone of the IANA list"),
        (["--every", "-5m"], 2, "'-5m' is not a duration"),
        (["--every", "0s"], 2, "every: an interval of 0 s is too short"),
        (["--every", "500ms"], 2, "write a whole number of seconds or more, such as"),
        (["--at", "2020-01-01T09:00"], 2, "at: 2020-01-01T09:00:00Z has passed, so it would never fire"),
        (["--at", "tomorrow"], 2, "at: 'tomorrow' is not a date with a time; write it like 2030-01-31T09:00"),
        (["--at", "2030-03-31T02:30", "--tz", "Europe/Berlin"], 2, "there is no 2030-03-31T02:30"),
        (["--every", "5m", "--cron", "0 9 * * *"], 2, "give only one kind of time"),
        (["--every", "5m", "--jitter", "5m"], 2, "jitter: must be shorter than the interval of 5m"),
        (["--cron", "* * * * *", "--jitter", "20h"], 2, "jitter: must be shorter than the interval of 1m"),
        (["--cron", "0,7 9 * * *", "--jitter", "7m"], 2, "interval of 7m between its times, such as 3m"),
    ],
    ids=lambda one: None if isinstance(one, str | int) else " ".join(one),
)
def test_a_wrong_time_is_refused_with_the_reason_and_an_example(
    run: Run, ledger: Opens, home: Path, options: list[str], status: int, told: str
) -> None:
    declare(home)
    with ledger():
        pass

    called = run("cron", "add", "tide", "--agent", "scholar", "--prompt", "look", *options)

    assert called.status == status
    assert told in called.err


def test_an_unknown_target_and_a_taken_name_are_refused(run: Run, ledger: Opens, home: Path) -> None:
    declare(home)
    with ledger():
        pass

    nobody = run("cron", "add", "a", "--every", "5m", "--agent", "nobody", "--prompt", "x")
    task = run("cron", "add", "a", "--every", "5m", "--task", "nope")
    both = run("cron", "add", "a", "--every", "5m", "--task", "nope", "--", "du")
    name = run("cron", "add", "a b/c", "--every", "5m", "--", "du")
    run("cron", "add", "a", "--every", "5m", "--", "du")
    taken = run("cron", "add", "a", "--every", "5m", "--", "du")

    assert "there is no agent 'nobody'; there are scholar" in nobody.err
    assert "knows the task 'nope'" in task.err
    assert "give only one target" in both.err
    assert name.status == 0  # a title: its id is a-b-c
    assert taken.status == 3
    assert "there is a schedule a already; choose another name, or change that one" in taken.err


def test_a_list_beside_invalid_settings_is_one_answer(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text("[gateway]\nport = 'x'")

    found = run("cron", "list", "--json")

    assert (found.status, found.json["jobs"]) == (0, [])
    assert "the settings are invalid, so their schedules are unknown: gateway.port in" in found.err
