"""`holdfast progress`: the seed's example on a screen, in a pipe, as documents, and in a real terminal."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.cli import campaign_progress, output
from holdfast.cli.progress_lines import signs_for
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.doors.calls import UNFIT, Opens, Run
from tests.doors.listings import width
from tests.doors.terminals import Terminal
from tests.engine.campaigns.campaign_world import a_spec, items
from tests.engine.priority_campaign import PHASE, seed_campaign

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> FakeClock:
    """The example begins half an hour ago, because the commands tell how long it takes."""
    return FakeClock(datetime.now(UTC) - timedelta(minutes=30))  # noqa: TID251 - the commands read the clock


@pytest.fixture
def example(ledger: Opens, clock: FakeClock) -> None:
    with ledger() as store:
        asyncio.run(seed_campaign(store, clock))


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setattr(campaign_progress, "is_terminal", lambda _stream: True)


@pytest.mark.usefixtures("example")
def test_the_seeds_example_is_shown_once_in_a_pipe(run: Run) -> None:
    shown = run("progress")

    lines = shown.out.splitlines()
    assert lines[0].startswith("rd-os  running for 30m · 400 items in 40 batches")
    assert [re.sub(r"[█▒·✗]+", "|", line).split() for line in lines[2:7]] == [
        [PHASE, "|", "37.5%", "150", "of", "400", "|", "50", "running"],
        ["P0", "|", "100%", "50", "of", "50"],
        ["P1", "|", "80%", "80", "of", "100", "|", "20", "running"],
        ["P2", "|", "13.3%", "20", "of", "150", "|", "30", "running"],
        ["P3", "|", "0%", "0", "of", "100"],
    ]
    assert lines[7] == "  now P1 batch-009 (8/10 done) · next P2 batch-021 (10 waiting)"
    assert re.match(r"  \d{3} an hour · done in about \d+m \(\d+m to .*\), ", lines[8])
    assert "\x1b" not in shown.out


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("columns", [40, 80, 120, 200])
@pytest.mark.parametrize("command", [("progress", "--once"), ("progress", "--by", "batch")])
def test_every_line_fits_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: int, command: tuple[str, ...]
) -> None:
    on_terminal(monkeypatch, columns)

    shown = run(*command)

    assert shown.status == 0, shown.err
    assert max(width(line) for line in shown.out.splitlines()) <= min(columns, 120)
    assert UNFIT.search(shown.out) is None


@pytest.mark.usefixtures("example")
def test_the_documents_are_the_seeds(run: Run) -> None:
    context, document = run("progress", "--context"), run("progress", "rd-os", "--document", "--phase", PHASE)

    assert list(context.json) == [
        "phase",
        "overall",
        "by_priority",
        "current_focus",
        "next_up",
        "eta",
        "issues",
        "last_checkpoint",
    ]
    assert context.json["overall"] == {
        "total": 400,
        "done": 150,
        "in_progress": 50,
        "pending": 200,
        "failed": 0,
        "percent": 37.5,
    }
    assert len(context.out.encode()) <= 2048
    assert document.json["by_priority"]["P1"] == {"total": 100, "analyzed": 80, "pending": 20}


@pytest.mark.usefixtures("example")
def test_the_json_has_the_phases_with_their_groups(run: Run) -> None:
    view = run("progress", "--json").json

    (phase,) = view["phases"]
    assert view["currentPhase"] == PHASE
    assert view["counts"]["percent"] == 37.5
    assert [one["counts"]["done"] for one in phase["byPriority"]] == [50, 80, 20, 0]
    assert [one["name"] for one in phase["byCategory"]] == ["product"]
    assert phase["currentBatch"]["id"] == "batch-009"
    assert phase["nextBatch"]["id"] == "batch-021"
    assert phase["rate"]["etaLow"] < phase["rate"]["eta"] < phase["rate"]["etaHigh"]


@pytest.mark.usefixtures("example")
def test_a_drill_down_and_a_sample(run: Run) -> None:
    first = run("progress", "--by", "batch", "--limit", "30")
    rest = run("progress", "--by", "batch", "--page", "30", "--json").json
    some = run("progress", "--sample", "3", "--status", "running", "--seed", "7", "--json").json
    same = run("progress", "--sample", "3", "--status", "running", "--seed", "7", "--json").json
    shown = run("progress", "--sample", "2", "--status", "done")
    none = run("progress", "--sample", "2", "--status", "failed")

    assert len(first.out.splitlines()) == 30
    assert "for the next page, add --page 30" in first.err
    assert [one["name"] for one in rest["groups"]] == [f"batch-{number:03d}" for number in range(31, 41)]
    assert some == same
    assert (some["of"], [one["status"] for one in some["items"]]) == (50, ["running"] * 3)
    assert shown.out.count("lines_of_code") == 2
    assert "2 of 150 done items in the phase" in shown.err
    assert none.out == ""


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    "options",
    [
        ("--context", "--by", "batch"),
        ("--sample", "3", "--document"),
        ("--status", "failed"),
        ("--seed", "3"),
        ("--page", "3"),
        ("--phase", "packing"),
        ("--sample", "101"),
        ("--by", "batch", "--page", "=x"),
        ("../x",),
    ],
)
def test_options_that_do_not_belong_together_are_refused(run: Run, options: tuple[str, ...]) -> None:
    assert run("progress", *options).status == 2


def test_without_a_campaign_it_says_how_to_create_one(run: Run, ledger: Opens) -> None:
    missing = run("progress")
    with ledger():
        pass
    empty = run("progress", "--context")
    unknown = run("progress", "nope")

    assert missing.status == empty.status == unknown.status == 4
    assert "holdfast campaign create --help" in empty.err
    assert "holdfast campaign list" in unknown.err


def test_a_screen_of_long_names_and_a_failure_fits(
    run: Run, ledger: Opens, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def arrange(store: SqliteStore) -> None:
        campaigns = Campaigns(store, clock)
        await campaigns.create("x" * 100, a_spec(), items(3, priorities=("P0", "P9")))
        await campaigns.start("x" * 100)
        await campaigns.pause("x" * 100, reason="🦉 " * 500)

    with ledger() as store:
        asyncio.run(arrange(store))
    on_terminal(monkeypatch, 80)

    shown = run("progress").out

    long = [line for line in shown.splitlines() if width(line) > 80]
    # Only a command is longer, so that it can be copied.
    assert all("holdfast campaign resume" in line for line in long)
    assert "paused" in shown


@pytest.mark.parametrize(
    ("encoding", "sign"), [("utf-8", "█"), ("ascii", "#"), ("latin-1", "#"), (None, "#")]
)
def test_bars_use_signs_that_the_terminal_can_write(encoding: str | None, sign: str) -> None:
    assert signs_for(encoding).done == sign


@pytest.mark.usefixtures("example")
def test_a_terminal_follows_until_the_campaign_stops(home: Path, ledger: Opens, clock: FakeClock) -> None:
    with Terminal(home, "progress") as terminal:
        terminal.read_until("80 of 100")
        is_ascii = "#" in terminal.shown
        with ledger() as store:
            asyncio.run(Campaigns(store, clock).pause("rd-os", reason="lunch"))
        terminal.read_until("paused (lunch)")
        status = terminal.end()

    assert status == 0
    # The live screen has the same signs as the last one.
    assert is_ascii == ("█" not in terminal.shown)
    # The cursor is shown again.
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")


@pytest.mark.usefixtures("example")
def test_ctrl_c_leaves_the_screen_and_the_campaign_goes_on(home: Path, run: Run) -> None:
    with Terminal(home, "progress") as terminal:
        terminal.read_until("80 of 100")
        terminal.press("\x03")
        status = terminal.end()

    assert status == 0
    assert "Traceback" not in terminal.shown
    assert run("campaign", "show", "rd-os", "--json").json["campaign"]["status"] == "running"
