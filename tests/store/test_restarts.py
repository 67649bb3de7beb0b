"""Restarts with their manifests, on every backend."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import IllegalMove, NotFound
from holdfast.core.manifest import (
    ActiveCronRun,
    ActiveSession,
    Interruption,
    InterruptionKind,
    InterruptionOutcome,
    Manifest,
    Recovered,
    Restart,
    RestartOutcome,
    Trigger,
)
from holdfast.core.transitions import RestartStatus
from holdfast.store import Store, Tx
from tests.builders import BOOT, OTHER_BOOT, START, a_restart, later, write

A_RUN = Interruption(kind=InterruptionKind.RUN, task_id="task_1", title="dig", status="running")

# The document of the seed, as it stands there.
SEED = {
    "timestamp": "2026-03-29T23:25:30Z",
    "reason": "config-change",
    "triggeredBy": "agent:main:guild-agent-birthing",
    "activeSessions": [
        {
            "key": "agent:main:main",
            "status": "processing",
            "lastUserMessage": "Can you check the garden plan?",
            "activeSubagents": ["agent:sage:guild-gardening"],
            "channel": "discord",
            "channelTarget": "user:344256406146383874",
        }
    ],
    "activeCronRuns": [
        {
            "jobId": "5a820e42-...",
            "jobName": "Pulse: Nightly Ecosystem Scan",
            "startedAt": "2026-03-29T23:20:00Z",
            "status": "running",
        }
    ],
}


def test_the_manifest_has_the_fields_of_the_seed() -> None:
    manifest = Manifest(
        timestamp="2026-03-29T23:25:30Z",
        reason="config-change",
        triggered_by="agent:main:guild-agent-birthing",
        active_sessions=(
            ActiveSession(
                key="agent:main:main",
                status="processing",
                last_user_message="Can you check the garden plan?",
                active_subagents=("agent:sage:guild-gardening",),
                channel="discord",
                channel_target="user:344256406146383874",
            ),
        ),
        active_cron_runs=(
            ActiveCronRun(
                job_id="5a820e42-...",
                job_name="Pulse: Nightly Ecosystem Scan",
                started_at="2026-03-29T23:20:00Z",
                status="running",
            ),
        ),
        restart_id="rst_1",
    )

    document = msgspec.json.decode(msgspec.json.encode(manifest))

    assert {name: document[name] for name in SEED} == SEED
    assert list(document)[: len(SEED)] == list(SEED)


def test_a_restart_is_read_back_as_it_was_written(store: Store) -> None:
    manifest = Manifest(
        timestamp="2026-01-01T00:00:00Z",
        reason="why",
        triggered_by="ada",
        restart_id="rst_1",
        interruptions=(
            Interruption(kind=InterruptionKind.RUN, task_id="task_1", title="a goal", status="running"),
        ),
    )
    trigger = Trigger(
        reason="why", triggered_by="ada", at=START, session_key="agent:a:b", continuation="go on"
    )
    restart = a_restart(id="rst_1", manifest=manifest, triggers=(trigger,))

    write(store, lambda tx: tx.restarts.create(restart))

    assert store.read_now(lambda tx: tx.restarts.get("rst_1")) == restart
    assert store.read_now(lambda tx: tx.restarts.page()) == [restart]


def test_open_restarts_are_those_of_every_place_oldest_first(store: Store) -> None:
    restarts = (
        a_restart(id="rst_1"),
        a_restart(id="rst_2", status=RestartStatus.DRAINED),
        a_restart(id="rst_3", status=RestartStatus.RECOVERED),
        a_restart(id="rst_4", status=RestartStatus.BLOCKED),
        a_restart(id="rst_5", place="elsewhere"),
    )
    store.write_now(lambda tx: [tx.restarts.create(restart) for restart in restarts])

    found = store.read_now(lambda tx: tx.restarts.open())

    assert [one.id for one in found] == ["rst_1", "rst_2", "rst_5"]
    assert [one.id for one in store.read_now(lambda tx: tx.restarts.page(2, before="rst_4"))] == [
        "rst_3",
        "rst_2",
    ]


def test_one_restart_keeps_every_reason_once(store: Store) -> None:
    write(store, lambda tx: tx.restarts.create(a_restart(id="rst_1")))
    one, other = (Trigger(reason=why, triggered_by="ada", at=START) for why in ("one", "other"))

    write(store, lambda tx: tx.restarts.add_triggers("rst_1", [one], now=START))
    found = write(store, lambda tx: tx.restarts.add_triggers("rst_1", [one, other], now=START))

    assert found.triggers == (one, other)


def test_a_restart_that_is_over_takes_no_more_reasons(store: Store) -> None:
    write(store, lambda tx: tx.restarts.create(a_restart(id="rst_1", status=RestartStatus.DRAINED)))
    trigger = Trigger(reason="late", triggered_by="ada", at=START)

    with pytest.raises(IllegalMove):
        write(store, lambda tx: tx.restarts.add_triggers("rst_1", [trigger], now=START))


def test_a_restart_that_interrupted_more_than_was_known_says_so(store: Store) -> None:
    before = write(store, lambda tx: tx.restarts.create(a_restart(id="rst_1")))
    more = msgspec.structs.replace(before.manifest, interruptions=(A_RUN,))

    extended = store.write_now(lambda tx: tx.restarts.extend(before, more, now=later(seconds=1)))

    assert extended == store.read_now(lambda tx: tx.restarts.get("rst_1"))
    assert extended is not None
    assert (extended.manifest, extended.updated_at) == (more, later(seconds=1))


@pytest.mark.parametrize("how", ["changed", "recovered"])
def test_a_restart_that_is_not_as_it_was_read_is_not_extended(store: Store, how: str) -> None:
    before = write(store, lambda tx: tx.restarts.create(a_restart(id="rst_1")))
    more = msgspec.structs.replace(before.manifest, interruptions=(A_RUN,))
    if how == "changed":
        store.write_now(lambda tx: tx.restarts.extend(before, more, now=START))
    else:
        write(store, lambda tx: tx.restarts.move("rst_1", RestartStatus.RECOVERED, now=START))
    kept = store.read_now(lambda tx: tx.restarts.get("rst_1"))

    assert store.write_now(lambda tx: tx.restarts.extend(before, more, now=later(seconds=1))) is None
    assert store.read_now(lambda tx: tx.restarts.get("rst_1")) == kept


def test_what_came_of_a_restart_is_settled_once(store: Store) -> None:
    write(store, lambda tx: tx.restarts.create(a_restart(id="rst_1", boot_id=BOOT)))
    settled = RestartOutcome(
        recovered=(Recovered(task_id="task_1", fate=InterruptionOutcome.RESUMED, run_id="run_2"),), notices=1
    )
    outcome = settled

    def settle(tx: Tx) -> Restart:
        return tx.restarts.settle(
            "rst_1", RestartStatus.RECOVERED, now=START, outcome=outcome, recovered_by=OTHER_BOOT
        )

    first = store.write_now(settle)
    outcome = RestartOutcome()

    assert store.write_now(settle) == first
    assert (first.recovered_by, first.outcome) == (OTHER_BOOT, settled)
    assert store.read_now(lambda tx: tx.restarts.open()) == []


def test_an_unknown_restart_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="rst_none"):
        write(store, lambda tx: tx.restarts.add_triggers("rst_none", [], now=START))
