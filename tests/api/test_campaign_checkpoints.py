"""The methods of checkpoints of campaigns: answers, the bounds of an owner's token, and bad input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.engine.client.campaigns import Campaigns
from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors
from tests.engine.campaigns.campaign_world import CampaignWorker
from tests.engine.parts import Parts

pytestmark = pytest.mark.slow

SPEC = CampaignSpec(phases=(Phase(name="analysis", task="analyse"),))


def call(house: ServedDoors, method: str, token: str | None = None, **params: Any) -> Any:
    sent = {} if token is None else {"token": token}
    answer = house.post(method, params, **sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def begun(house: ServedDoors, name: str = "rd-os", owner: str = "ada") -> CampaignWorker:
    """A campaign of three items, of which one is done."""
    store, clock = house.gateway.store, house.gateway.clock

    async def begin() -> CampaignWorker:
        campaigns = Campaigns(store, clock, owner=owner)
        await campaigns.create(name, SPEC, [Item(id=f"repo-{number}") for number in range(3)])
        worker = CampaignWorker(await Parts.begin(store, clock), await campaigns.start(name))
        held = sorted(await worker.take())
        await worker.finish(held[0])
        return worker

    return asyncio.run(begin())


def test_a_milestone_is_named_listed_shown_and_gone_back_to(house: ServedDoors) -> None:
    worker = begun(house)

    named = call(house, "campaigns.milestone", name="p0-migrated", campaign="rd-os")
    asyncio.run(worker.finish(min(worker.held)))
    asyncio.run(worker.fail(min(worker.held)))
    listed = call(house, "campaigns.checkpoints", campaign="rd-os")["checkpoints"]
    shown = call(house, "campaigns.checkpoint", checkpointId=named["id"])
    plan = call(house, "campaigns.restore_plan", checkpointId=named["id"])
    done = call(house, "campaigns.restore", checkpointId=named["id"])

    assert (named["kind"], named["recoverable"], named["done"], named["total"]) == ("milestone", True, 1, 3)
    assert named in listed
    assert shown["since"][0]["undone"] == plan["undone"] == done["undone"] == 2
    assert (done["isOver"], done["campaignStatus"], done["stopping"]) == (True, "running", 0)
    assert call(house, "campaigns.restore_plan", checkpointId=named["id"])["undone"] == 0


def test_a_restore_says_how_many_items_must_stop(house: ServedDoors) -> None:
    begun(house)
    named = call(house, "campaigns.milestone", name="early")

    first = call(house, "campaigns.restore", checkpointId=named["id"])

    assert (first["isOver"], first["stopping"], first["campaignStatus"]) == (False, 2, "paused")


def test_changes_are_in_the_audit_log_and_reads_are_not(house: ServedDoors) -> None:
    begun(house)
    named = call(house, "campaigns.milestone", name="early")
    call(house, "campaigns.restore_plan", checkpointId=named["id"])
    call(house, "campaigns.restore", checkpointId=named["id"])
    call(house, "campaigns.prune", campaign="rd-os", isDryRun=True)
    call(house, "campaigns.prune", campaign="rd-os", olderThanS=0)

    entries = house.gateway.store.read_now(lambda tx: tx.audit.page(limit=100))
    actions = [one.action for one in entries if one.action.startswith("campaigns.")]
    assert sorted(actions) == ["campaigns.milestone", "campaigns.prune", "campaigns.restore"]


def test_a_token_of_one_owner_reaches_only_its_own(house: ServedDoors) -> None:
    begun(house, "hers")
    begun(house, "own", owner=OWNER)
    hers = call(house, "campaigns.milestone", name="hers", campaign="hers")
    own = call(house, "campaigns.milestone", token=OWNER_TOKEN, name="own", campaign="own")

    listed = call(house, "campaigns.checkpoints", token=OWNER_TOKEN)["checkpoints"]
    assert [one["id"] for one in listed] == [own["id"]]
    assert call(house, "campaigns.checkpoint", token=OWNER_TOKEN, checkpointId=own["id"])
    for method, params in (
        ("campaigns.checkpoints", {"campaign": "hers"}),
        ("campaigns.checkpoint", {"checkpointId": hers["id"]}),
        # A prefix could tell about those of others.
        ("campaigns.checkpoint", {"checkpointId": hers["id"][:-1]}),
        ("campaigns.restore_plan", {"checkpointId": hers["id"]}),
        ("campaigns.restore", {"checkpointId": hers["id"]}),
        ("campaigns.milestone", {"name": "x", "campaign": "hers"}),
        ("campaigns.prune", {"campaign": "hers"}),
    ):
        answer = house.post(method, params, token=OWNER_TOKEN)
        assert answer.status_code == 404, (method, answer.text)


def test_a_reader_may_look_and_change_nothing(house: ServedDoors) -> None:
    begun(house)
    named = call(house, "campaigns.milestone", name="early")

    assert call(house, "campaigns.restore_plan", token=READ_TOKEN, checkpointId=named["id"])
    for method, params in (
        ("campaigns.milestone", {"name": "x"}),
        ("campaigns.restore", {"checkpointId": named["id"]}),
        ("campaigns.prune", {"campaign": "rd-os"}),
    ):
        assert house.post(method, params, token=READ_TOKEN).status_code == 403


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("campaigns.checkpoints", {"campaign": "../x"}),
        ("campaigns.checkpoints", {"campaign": "rd-os", "pageToken": "-1"}),
        ("campaigns.checkpoints", {"pageToken": "checkpoint-nope"}),
        ("campaigns.checkpoints", {"limit": 0}),
        ("campaigns.checkpoints", {"kind": "micro"}),
        ("campaigns.checkpoint", {"checkpointId": "../../etc/passwd"}),
        ("campaigns.checkpoint", {}),
        ("campaigns.milestone", {"name": ".."}),
        ("campaigns.milestone", {"name": "A"}),
        ("campaigns.milestone", {"name": "x" * 27}),
        ("campaigns.restore", {"checkpointId": "checkpoint-x", "effects": "compensate"}),
        ("campaigns.restore", {"checkpointId": "checkpoint-x", "effects": None}),
        ("campaigns.restore", {"checkpointId": "checkpoint-x", "more": 1}),
        ("campaigns.prune", {"campaign": "rd-os", "olderThanS": -1}),
    ],
)
def test_bad_input_is_refused(house: ServedDoors, method: str, params: dict[str, Any]) -> None:
    begun(house)

    answer = house.post(method, params)

    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("method", ["campaigns.checkpoint", "campaigns.restore_plan", "campaigns.restore"])
def test_an_unknown_checkpoint_is_not_found(house: ServedDoors, method: str) -> None:
    assert house.post(method, {"checkpointId": "checkpoint-x"}).status_code == 404
