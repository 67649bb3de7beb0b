"""agents list, show, pause, resume, restart: one list of both kinds, on a terminal and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.core.clock import Clock
from holdfast.core.ids import BootId
from holdfast.core.start_record import StartRecord, StartStep, StepRecord
from holdfast.engine.campaigns.creating import NewCampaign, adding_items, creating_campaign
from holdfast.store import Store
from tests.builders import START
from tests.doors.calls import HOSTILE, UNFIT, Opens, Run

PHASES = (Phase(name="analysis", task="analyse"), Phase(name="migration", task="migrate"))


@pytest.fixture
def settings(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text('[agents.ada]\ncommand = ["cat"]\n', encoding="utf-8")


def a_campaign(store: Store, clock: Clock, count: int = 2, **more: Any) -> None:
    spec = CampaignSpec(phases=PHASES)
    campaign = store.write_now(creating_campaign(NewCampaign(name="rd-os", spec=spec), now=clock.now()))
    items = [Item(id=f"repo-{number:03d}", **more) for number in range(1, count + 1)]
    store.write_now(adding_items(campaign.id, items, now=clock.now()))


@pytest.mark.usefixtures("settings")
def test_without_a_ledger_the_agents_of_the_settings_are_listed(run: Run) -> None:
    called = run("agents", "--json")

    assert [(one["id"], one["kind"], one["status"]) for one in called.json["agents"]] == [
        ("ada", "gateway", "idle")
    ]
    assert run("agents", "pause", "ada").status == 4


@pytest.mark.usefixtures("settings")
def test_both_kinds_are_listed_shown_paused_and_resumed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        a_campaign(store, store.clock)

    listed = run("agents", "list")
    paused = run("agents", "pause", "repo-001-analyzer", "--reason", "not yet")
    own = run("agents", "pause", "ada")
    only = run("agents", "list", "--status", "paused", "--json").json
    shown = run("agents", "show", "repo-001-analyzer")
    resumed = [run("agents", "resume", name) for name in ("ada", "repo-001-analyzer")]

    assert "repo-002-migrator" in listed.out
    assert paused.out == "repo-001-analyzer is paused: it does not start until it is resumed\n"
    assert own.out.startswith("ada is paused: it answers no message")
    assert [one["id"] for one in only["agents"]] == ["ada", "repo-001-analyzer"]
    assert "not yet" in shown.out
    assert [one.status for one in resumed] == [0, 0]
    assert "it begins, when " in resumed[1].out
    assert run("agents", "list", "--status", "paused", "--json").json["agents"] == []


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("show", "repo-009-analyzer"), 4),
        (("list", "--campaign", "nothing"), 4),
        (("pause", "repo-001-analyzer", "--campaign", "no name!"), 2),
        (("pause", ""), 2),
        (("list", "--status", "sleepy"), 2),
        (("list", "--page", "x"), 2),
        (("restart", "ada"), 3),
    ],
)
def test_bad_input_is_refused(run: Run, ledger: Opens, arguments: tuple[str, ...], status: int) -> None:
    with ledger() as store:
        a_campaign(store, store.clock)

    assert run("agents", *arguments).status == status


def test_pages_lead_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        a_campaign(store, store.clock, 3)

    first = run("agents", "list", "--limit", "4")
    token = first.err.partition("--page ")[2].split()[0]
    rest = run("agents", "list", "--page", token, "--json").json

    assert len(rest["agents"]) == 2
    assert rest["nextPageToken"] is None


def test_hostile_texts_are_made_safe(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        a_campaign(store, store.clock, name="a name")
    run("agents", "pause", "repo-001-analyzer", "--reason", HOSTILE.replace("\x00", ""))

    assert not UNFIT.search(run("agents", "list").out)
    assert not UNFIT.search(run("agents", "show", "repo-001-analyzer").out)


# --- status --recovery


def a_start(number: int) -> StartRecord:
    steps = (
        StepRecord(step=StartStep.CONFIGURATION, began_at=START, ended_at=START, counts={"tasks": 3}),
        StepRecord(
            step=StartStep.LOAD,
            began_at=START,
            ended_at=START,
            counts={"agentsKnown": 400, "itemsDone": 1, "itemsRunning": 50, "itemsPending": 200},
        ),
        StepRecord(step=StartStep.RECONCILE, began_at=START, notes=(f"boot_x died {HOSTILE}",)),
    )
    return StartRecord(
        boot_id=BootId(f"boot_{number}"), role="worker", host="vm", pid=7, began_at=START, steps=steps
    )


def test_one_of_a_kind_is_counted_in_the_singular(run: Run, ledger: Opens) -> None:
    counts = dict.fromkeys(("campaigns", "agentsKnown", "deadProcesses", "runsDue", "needsReview"), 1)
    step = StepRecord(step=StartStep.LOAD, began_at=START, ended_at=START, counts=counts | {"tasks": 2})
    start = StartRecord(
        boot_id=BootId("boot_1"), role="worker", host="vm", pid=7, began_at=START, steps=(step,)
    )
    with ledger() as store:
        store.write_now(lambda tx: tx.starts.save(start))

    said = " ".join(run("status", "--recovery").out.split())

    assert "1 campaign, 1 agent known, 1 dead process, 1 run due, 1 needs review, 2 tasks" in said


def test_a_start_that_was_cut_off_is_shown_with_what_it_had_found(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        store.write_now(lambda tx: tx.starts.save(a_start(1)))
        store.write_now(lambda tx: tx.starts.save(a_start(2)))

    called = run("status", "--recovery")
    view = run("status", "--recovery", "--boot", "boot_1", "--json").json

    assert "400 agents known, 1 item done, 50 items running" in " ".join(called.out.split())
    assert "cut off" in called.out
    assert "did not come to work" in called.out
    assert not UNFIT.search(called.out)
    assert max(map(len, called.out.splitlines())) <= 80
    assert [step["outcome"] for step in view["start"]["steps"]] == ["done", "done", "cut_off"]
    assert view["earlier"] == []


def test_without_a_start_it_says_so(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    assert "no gateway and no worker has started" in run("status", "--recovery").out
    assert run("status", "--recovery", "--boot", "boot_9").status == 4
    assert run("status", "--boot", "boot_9").status == 2


@pytest.mark.usefixtures("settings")
def test_a_filter_without_a_match_does_not_say_that_there_are_no_agents(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    found = run("agents", "list", "--status", "error")

    assert (found.status, found.err) == (0, "no agents like that; all of them: `holdfast agents list`\n")
