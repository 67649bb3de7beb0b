"""A milestone of very many items: built and read in bounded memory, in about as many bits."""

from __future__ import annotations

import tracemalloc

import pytest

from holdfast.core.campaign import Phase
from holdfast.core.campaign_checkpoint import Places, pack_places
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.program.campaign_restore import changed_since
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import a_spec
from tests.engine.tables import execute

MANY = 100_000
_ROWS = {
    # The rows of a campaign with many items, of which two thirds are done.
    "sqlite": "WITH RECURSIVE places (place) AS (SELECT 0 UNION ALL SELECT place + 1 FROM places "
    "WHERE place < {last}) ",
    "postgres": "WITH places AS (SELECT generate_series(0, {last}) AS place) ",
}
_INSERT = (
    "INSERT INTO item_phases "
    "(campaign_id, phase, place, priority, batch, status, unmet, attempt, updated_at) "
    "SELECT '{campaign}', 0, place, 'P2', place / 10 + 1, "
    "CASE WHEN place % 3 < 2 THEN 'done' ELSE 'pending' END, 0, 0, 1 FROM places"
)


@pytest.mark.slow
async def test_a_milestone_of_many_items_is_small_and_read_in_bounded_memory(
    store: Store, clock: FakeClock
) -> None:
    campaigns = Campaigns(store, clock)
    draft = await campaigns.create("many", a_spec(Phase(name="analysis", task="analyse")))
    dialect = "postgres" if "Postgres" in type(store).__name__ else "sqlite"
    rows = _ROWS[dialect].format(last=MANY - 1)
    execute(store, rows + _INSERT.format(campaign=draft.id))
    execute(store, f"UPDATE campaigns SET items = {MANY}")
    campaign = await campaigns.get("many")

    tracemalloc.start()
    prepared = await store.read(lambda tx: prepared_milestone(tx, campaign, "all", now=clock.now()))
    saved = await store.write(saving(prepared))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert saved is not None
    assert sum(len(packed) for packed in prepared.places) < 1_000
    assert peak < 6.4 * 1024 * 1024
    places = await store.read(lambda tx: tx.campaign_checkpoints.places(saved[-1].id, 0))
    assert places is not None
    assert len(places) == 66_667
    since = await store.read(lambda tx: changed_since(tx, saved[-1], campaign))
    assert [(one.undone, one.lost) for one in since] == [(0, 0)]


def test_the_worst_case_of_many_items_takes_as_many_bits() -> None:
    done = [place for place in range(MANY) if hash(str(place)) & 1]

    packed = pack_places(done, MANY)

    assert len(packed) <= MANY / 8 + 1024
    assert len(Places(packed)) == len(done)
