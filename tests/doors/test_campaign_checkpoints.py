"""checkpoints list, show, milestone, restore and prune of campaigns."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.core.transitions import EffectStatus
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.client.campaigns import Campaigns
from holdfast.progress.saver import CampaignSaver
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.builders import an_effect
from tests.doors.calls import Call, Opens, Run
from tests.engine.campaigns.campaign_world import CampaignWorker
from tests.engine.parts import Parts
from tests.engine.tables import dump, execute

pytestmark = pytest.mark.slow

SPEC = CampaignSpec(phases=(Phase(name="analysis", task="analyse"), Phase(name="migration", task="migrate")))


async def begin(store: Store, clock: FakeClock, name: str = "rd-os", count: int = 4) -> CampaignWorker:
    campaigns = Campaigns(store, clock)
    await campaigns.create(name, SPEC, [Item(id=f"repo-{number}") for number in range(count)])
    return CampaignWorker(await Parts.begin(store, clock), await campaigns.start(name))


async def half_way(store: Store, clock: FakeClock) -> str:
    """A milestone, and after it two items done in the first phase; the id of the milestone."""
    worker = await begin(store, clock)
    held = sorted(await worker.take())
    await worker.finish(held[0])
    milestone = await Campaigns(store, clock).milestone("p0-migrated", "rd-os")
    for name in held[1:]:
        await worker.finish(name)
    return milestone.id


@pytest.fixture
def milestone(ledger: Opens, clock: FakeClock) -> str:
    with ledger() as store:
        return asyncio.run(half_way(store, clock))


# --- list and show


def test_a_list_of_a_campaign_shows_its_checkpoints_newest_first(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    with ledger() as store:

        async def fill() -> None:
            worker = await begin(store, clock)
            await CampaignSaver(store, clock).run_once()
            await worker.finish_all()
            await worker.start()
            await CampaignSaver(store, clock).run_once()
            await begin(store, clock, "other")
            await CampaignSaver(store, clock).run_once()

        asyncio.run(fill())

    called = run("checkpoints", "list", "--campaign", "rd-os")
    page = run("checkpoints", "--campaign", "rd-os", "--json").json

    assert called.status == 0
    assert [one["name"] for one in page["checkpoints"]] == [
        "campaign-complete",
        "migration-complete",
        "analysis-complete",
        "batch-001",
        "started",
    ]
    assert page["checkpoints"][0]["done"] == page["checkpoints"][0]["total"] == 8
    assert "8 of 8" in called.out
    assert called.err == "5 checkpoints\n"
    kinds = run("checkpoints", "list", "--campaign", "rd-os", "--kind", "milestone", "--json").json
    assert {one["kind"] for one in kinds["checkpoints"]} == {"milestone"}
    everything = run("checkpoints", "list", "--campaigns", "--json").json
    assert sorted({one["campaign"] for one in everything["checkpoints"]}) == ["other", "rd-os"]
    # Those of runs are listed as before.
    assert run("checkpoints", "list", "--json").json["checkpoints"] == []


@pytest.mark.parametrize("which", [("--campaign", "rd-os"), ("--campaigns",)])
def test_pages_follow_each_other(run: Run, ledger: Opens, clock: FakeClock, which: tuple[str, ...]) -> None:
    with ledger() as store:

        async def fill() -> None:
            await begin(store, clock)
            for number in range(7):
                clock.advance(seconds=1)
                await Campaigns(store, clock).milestone(f"m{number}", "rd-os")

        asyncio.run(fill())

    names: list[str] = []
    more: tuple[str, ...] = ()
    for _ in range(4):
        page = run("checkpoints", "list", *which, "--limit", "3", "--json", *more).json
        names += [one["name"] for one in page["checkpoints"]]
        if page["nextPageToken"] is None:
            break
        more = ("--page", page["nextPageToken"])

    assert names == [f"m{number}" for number in reversed(range(7))]


def test_one_milestone_shows_its_summary_and_what_has_changed_since(run: Run, milestone: str) -> None:
    called = run("checkpoints", "show", milestone)
    view = run("checkpoints", "show", milestone[:20], "--json").json

    assert called.status == 0
    assert "Changed since then" in called.out
    assert view["checkpoint"]["id"] == milestone
    assert view["summary"]["overall"]["done"] == 1
    assert view["since"][0] == {
        "phase": "analysis",
        "done": 3,
        "failed": 0,
        "running": 0,
        "waiting": 0,
        "undone": 3,
        "lost": 0,
    }


# --- milestone


def test_an_operator_names_a_milestone(run: Run, ledger: Opens, clock: FakeClock) -> None:
    with ledger() as store:
        asyncio.run(begin(store, clock))

    called = run("checkpoints", "milestone", "p0-migrated", "--campaign", "rd-os", "--json")
    newest = run("checkpoints", "milestone", "again")

    assert called.json["id"].startswith("checkpoint-p0-migrated-")
    assert called.json["recoverable"] is True
    assert newest.out.startswith("checkpoint-again-")
    listed = run("checkpoints", "list", "--campaign", "rd-os", "--json").json["checkpoints"]
    assert [one["name"] for one in listed] == ["again", "p0-migrated"]


@pytest.mark.parametrize("name", ["..", "a/b", "A", "a b", "x" * 27])
def test_a_hostile_name_is_refused(run: Run, ledger: Opens, clock: FakeClock, name: str) -> None:
    with ledger() as store:
        asyncio.run(begin(store, clock))

    called = run("checkpoints", "milestone", name)

    assert called.status == 2
    assert "small letters" in called.err


# --- restore


def records(store: Store) -> dict[str, Any]:
    """Everything but the mark that each opening raises."""
    return {name: rows for name, rows in dump(store).items() if name != "ledger_facts"}


def test_a_milestone_is_restored_by_its_plain_name(run: Run, milestone: str) -> None:
    called = run("checkpoints", "restore", "p0-migrated")

    assert called.status == 0, called.err
    assert milestone in called.out


def test_without_apply_a_restore_says_what_it_would_undo_and_changes_nothing(
    run: Run, ledger: Opens, milestone: str
) -> None:
    with ledger() as store:
        before = records(store)

    called = run("checkpoints", "restore", milestone)
    plan = run("checkpoints", "restore", milestone, "--json").json

    with ledger() as store:
        assert records(store) == before
    assert called.status == 0
    assert f"restore to  {milestone}\nwould make 3 items pending again" in called.out
    assert f"to do it: holdfast checkpoints restore {milestone} --apply" in called.err
    assert (plan["undone"], plan["effects"], plan["isUnfinished"]) == (3, [], False)


def test_with_apply_it_is_done_and_recorded_in_the_audit_log(run: Run, milestone: str) -> None:
    called = run("checkpoints", "restore", milestone, "--apply")
    again = run("checkpoints", "restore", milestone, "--apply", "--json").json

    assert called.status == 0, called.err
    assert called.out == f"rd-os is at {milestone} again: 3 items pending, campaign running\n"
    assert (again["isOver"], again["undone"]) == (True, 0)
    assert "campaigns.restore" in run("audit", "log").out
    assert run("checkpoints", "show", milestone, "--json").json["since"][0]["undone"] == 0


def test_items_that_do_not_stop_leave_the_campaign_paused_and_say_the_next_command(
    run: Run, ledger: Opens, clock: FakeClock, milestone: str
) -> None:
    with ledger() as store:

        async def fill() -> None:
            campaign = await Campaigns(store, clock).get("rd-os")
            await store.write(starting_items(campaign.id, now=clock.now()))
            await (await Parts.begin(store, clock)).claims.take(10)

        asyncio.run(fill())

    called = run("checkpoints", "restore", milestone, "--apply")

    assert called.status == 1
    assert called.out == "rd-os stays paused: 4 items must stop first\n"
    assert f"then give the same command again: holdfast checkpoints restore {milestone} --apply" in called.err
    assert "this restore was begun and not finished" in run("checkpoints", "restore", milestone).err
    refused = run("campaign", "start", "rd-os")
    assert refused.status == 3
    assert "is under way; finish it first" in refused.err
    finish = f"a restore to {milestone} is not finished: holdfast checkpoints restore {milestone} --apply"
    assert run("progress", "rd-os", "--context").json["issues"][0] == finish
    assert finish in run("campaign", "show", "rd-os", "--json").json["issues"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("restore", "checkpoint-x"), 4, "no checkpoint"),
        (("restore", "checkpoint-../x"), 2, "an id has"),
        (("show", "checkpoint-x"), 4, "run `holdfast checkpoints list --campaigns`"),
        (("list", "--campaign", "nope"), 4, "no campaign"),
        (("list", "--campaign", "../x"), 2, "no name of a campaign"),
        (("list", "--kind", "milestone"), 2, "give either --campaign NAME or --campaigns"),
        (("list", "--campaigns", "--kind", "batch"), 2, "--kind goes with --campaign"),
        (("list", "--campaigns", "--campaign", "rd-os"), 2, "give either"),
        (("list", "--campaign", "rd-os", "--status", "resumed"), 2, "for checkpoints of runs"),
        (("list", "--campaign", "rd-os", "--page", "x"), 2, "not a page token"),
        (("list", "--campaigns", "--page", "x"), 2, "not a page token"),
        (("milestone", "m", "--campaign", "nope"), 4, "no campaign"),
        (("prune", "--kind", "batch"), 2, "--kind goes with --campaign"),
        (("prune", "--campaign", "nope"), 4, "no campaign"),
        (("restore", "checkpoint-x", "--effects", "compensate"), 2, "go together"),
        (("restore", "checkpoint-x", "--effects", "undo"), 2, "undo"),
    ],
)
@pytest.mark.usefixtures("milestone")
def test_a_wrong_command_is_told_what_is_wrong(
    run: Run, arguments: tuple[str, ...], status: int, says: str
) -> None:
    called: Call = run("checkpoints", *arguments)

    assert (called.status, says in called.err) == (status, True), called.err


def test_a_checkpoint_of_counts_is_refused_with_the_reason(run: Run, ledger: Opens, clock: FakeClock) -> None:
    with ledger() as store:

        async def fill() -> Any:
            await begin(store, clock)
            return await CampaignSaver(store, clock).run_once()

        (started,) = asyncio.run(fill())

    called = run("checkpoints", "restore", started.id, "--apply")

    assert called.status == 3
    assert "which holds only counts; choose another one: holdfast checkpoints list" in called.err
    assert run("checkpoints", "show", started.id, "--json").json["since"] is None


# --- prune


def test_old_checkpoints_of_a_campaign_are_pruned_and_the_last_one_stays(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    with ledger() as store:

        async def fill() -> list[str]:
            await begin(store, clock)
            campaigns = Campaigns(store, clock)
            return [(await campaigns.milestone(f"m{number}", "rd-os")).id for number in range(3)]

        ids = asyncio.run(fill())

    arguments = ("checkpoints", "prune", "--campaign", "rd-os", "--older-than", "0s")
    preview = run(*arguments, "--dry-run", "--json").json
    called = run(*arguments)

    assert preview["checkpointIds"] == ids[:2]
    assert called.out.split() == ids[:2]
    assert called.err.startswith("2 checkpoints of rd-os deleted (saved before ")
    listed = run("checkpoints", "list", "--campaign", "rd-os", "--json").json["checkpoints"]
    assert [one["id"] for one in listed] == ids[2:]


# --- effects


@pytest.fixture
def charged(ledger: Opens, clock: FakeClock) -> str:
    """A milestone since which two effects happened."""
    with ledger() as store:
        found = asyncio.run(half_way(store, clock))

        def charge(tx: Tx) -> None:
            for row in tx.item_phases.page(tx.campaigns.resolve("rd-os"), 0):
                if row.place in (1, 2):
                    tx.effects.create(
                        an_effect(task_id=row.task_id, status=EffectStatus.DONE, outcome=b'"paid"')
                    )

        store.write_now(charge)
    return found


def test_effects_since_need_a_decision(run: Run, charged: str) -> None:
    plan = run("checkpoints", "restore", charged)
    refused = run("checkpoints", "restore", charged, "--apply")
    done = run("checkpoints", "restore", charged, "--apply", "--effects", "acknowledge")

    assert "--apply --effects keep|compensate|acknowledge" in plan.err
    assert "Effects of their tasks" in plan.out
    assert refused.status == 3
    assert "say --effects keep, compensate or acknowledge" in refused.err
    assert done.status == 0


def test_effects_are_compensated_with_a_function_of_the_user(
    run: Run, charged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mending.py").write_text(
        "from pathlib import Path\n\n\n"
        "async def undo(effect, result):\n"
        "    with Path('undone').open('a') as file:\n"
        "        file.write(f'{result}\\n')\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ("checkpoints", "restore", charged, "--apply", "--effects", "compensate", "--compensate")

    wrong = run(*arguments, "mending:nope")
    done = run(*arguments, "mending:undo")

    assert wrong.status == 2
    assert "cannot be imported" in wrong.err
    assert done.status == 0, done.err
    assert (tmp_path / "undone").read_text() == "paid\npaid\n"


def test_a_restore_whose_function_failed_asks_for_it_or_for_another_decision(
    run: Run, charged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refunds.py").write_text(
        "def undo(effect, result):\n    raise OSError('the bank is closed')\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ("checkpoints", "restore", charged, "--apply")

    with contextlib.suppress(OSError):
        run(*arguments, "--effects", "compensate", "--compensate", "refunds:undo")
    without = run(*arguments)
    otherwise = run(*arguments, "--effects", "keep")

    assert without.status == 3
    assert "began with compensate, so it needs the function that undoes an effect" in without.err
    assert "--apply --effects acknowledge" in without.err
    assert otherwise.status == 0, otherwise.err


# --- micro


def test_the_last_saved_step_of_each_item_is_listed(run: Run, ledger: Opens, milestone: str) -> None:
    with ledger() as store:
        execute(
            store,
            "UPDATE item_phases SET last_action = 'wrote_dependency_graph', last_action_at = updated_at "
            "WHERE place < 2 AND phase = 0",
        )

    called = run("checkpoints", "list", "--campaign", "rd-os", "--kind", "micro")
    page = run("checkpoints", "list", "--campaign", "rd-os", "--kind", "micro", "--json").json
    paged = run("checkpoints", "list", "--campaign", "rd-os", "--kind", "micro", "--page", milestone)

    assert [one["item"] for one in page["checkpoints"]] == ["repo-0", "repo-1"]
    assert page["checkpoints"][0]["lastAction"] == "wrote_dependency_graph"
    assert "wrote_dependency_graph" in called.out
    assert paged.status == 2
