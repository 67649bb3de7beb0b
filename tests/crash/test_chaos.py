"""Agents whose server misbehaves, whose workers are killed and frozen and whose clocks jump repeat nothing.

HOLDFAST_BLOWS=2000 deals so many on each database; HOLDFAST_SEED=… has the same blows and the same answers of
the server again (as far as processes that race against each other can do the same again).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.effect import Effect, EffectClass
from holdfast.core.transitions import EffectStatus, TaskStatus
from tests.crash.chaos import AGENTS, WEIGHTS, StormReport, is_brittle, key_of, ops_of
from tests.crash.ledger_address import LedgerAddress
from tests.crash.provider import Act, Arrival
from tests.crash.verdict import FAILED, SKIPPED, Ended, Evidence, Judge, Kind, Told

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BLOWS = int(os.environ.get("HOLDFAST_BLOWS") or 24)
# Until it is stuck: to begin and to look at everything in the end, and for each blow.
MOST_S, MOST_PER_BLOW_S = 120, 3


def test_agents_in_a_storm_repeat_lose_and_hide_nothing(place: LedgerAddress, seed: int) -> None:
    command = [sys.executable, "-m", "tests.crash.chaos", place.url, str(place.home), str(seed), str(BLOWS)]

    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, timeout=MOST_S + BLOWS * MOST_PER_BLOW_S, check=False
    )

    assert done.returncode == 0, "something was repeated, lost or hidden, or is stuck; see the output"
    report = msgspec.json.decode(done.stdout, type=StormReport)
    print(f"{place.url.partition(':')[0]}: {report}")
    assert sum(report.blows.values()) >= BLOWS
    assert len(report.blows) == min(len(WEIGHTS), BLOWS), "a kind of blow was left out"
    assert report.agents % AGENTS == 0
    for effect_class in ("read", "idempotent", "transactional"):
        assert report.by_class[effect_class].reviews == 0
    # Otherwise nothing has struck what it was meant for.
    assert report.by_class["opaque"].reviews > 0


# --- the checks themselves

OPAQUE, KEYED, VERIFIABLE, BOOKED, LOOKED = (
    "1-1-1-opaque",
    "1-1-1-keyed",
    "1-1-1-verifiable",
    "booked",
    "read",
)
PATIENT, BRITTLE = "1-1", "1-4"


def an_effect(op: str, effect_class: EffectClass, **changes: Any) -> Effect:
    effect = Effect(
        id=f"eff_{op}",  # type: ignore[arg-type] # only compared
        task_id="task_1",  # type: ignore[arg-type]
        run_id="run_1",  # type: ignore[arg-type]
        name="post",
        occurrence=f"id:{op}",
        effect_class=effect_class,
        idempotency_key=f"key of {op}",
        request=b"[]",
        created_us=1,
        status=EffectStatus.DONE,
        fence=1,
        updated_us=2,
    )
    return msgspec.structs.replace(effect, **changes)


def an_arrival(op: str, *, performed: bool = True) -> Arrival:
    return Arrival(route="opaque", op=op, key=f"key of {op}", act=Act.WELL, performed=performed)


CLASSES = {
    OPAQUE: EffectClass.OPAQUE,
    KEYED: EffectClass.KEYED,
    VERIFIABLE: EffectClass.VERIFIABLE,
    BOOKED: EffectClass.TRANSACTIONAL,
    LOOKED: EffectClass.READ,
}


def good_evidence() -> Evidence:
    """One agent that did one thing of each kind, and each happened once, as the ledger says."""
    told = [Told(op, f"did {op}") for op in CLASSES]
    return Evidence(
        seed=7,
        classes=CLASSES,
        arrivals=[an_arrival(op) for op in CLASSES if op != BOOKED],
        effects=[an_effect(op, one) for op, one in CLASSES.items() if one is not EffectClass.READ],
        bookings={BOOKED: 1},
        agents={
            PATIENT: Ended(
                status=TaskStatus.SUCCEEDED, is_brittle=False, ops=list(CLASSES), told=told, failure=""
            )
        },
        acknowledged=told,
        decided={},
    )


def with_effect(evidence: Evidence, op: str, **changes: Any) -> Evidence:
    effects = [
        msgspec.structs.replace(one, **changes) if one.occurrence == f"id:{op}" else one
        for one in evidence.effects
    ]
    return msgspec.structs.replace(evidence, effects=effects)


def with_told(evidence: Evidence, op: str, outcome: str, *, is_acknowledged: bool = True) -> Evidence:
    """The agent was told something else of one operation."""
    agent = evidence.agents[PATIENT]
    told = [Told(op, outcome) if one.op == op else one for one in agent.told]
    return msgspec.structs.replace(
        evidence,
        agents={PATIENT: msgspec.structs.replace(agent, told=told)},
        acknowledged=told if is_acknowledged else evidence.acknowledged,
    )


def with_agent(evidence: Evidence, **changes: Any) -> Evidence:
    agent = msgspec.structs.replace(evidence.agents[PATIENT], **changes)
    return msgspec.structs.replace(evidence, agents={PATIENT: agent})


def arrived_again(evidence: Evidence, op: str, *, performed: bool = True) -> Evidence:
    arrivals = [*evidence.arrivals, an_arrival(op, performed=performed)]
    return msgspec.structs.replace(evidence, arrivals=arrivals)


def never_arrived(evidence: Evidence, op: str) -> Evidence:
    return msgspec.structs.replace(evidence, arrivals=[one for one in evidence.arrivals if one.op != op])


def failed_but_shown(evidence: Evidence, op: str) -> Evidence:
    """It was performed and raised, and its agent was told so."""
    shown = with_told(evidence, op, f"{FAILED}httpx.HTTPStatusError")
    return with_effect(shown, op, status=EffectStatus.FAILED)


def ended_by_a_failure(evidence: Evidence) -> Evidence:
    return with_agent(evidence, is_brittle=True, status=TaskStatus.FAILED, told=[])


def skipped(evidence: Evidence) -> Evidence:
    """A person saw that it had not happened, and left it out."""
    left_out = with_told(never_arrived(evidence, OPAQUE), OPAQUE, SKIPPED)
    decided = msgspec.structs.replace(left_out, decided={f"eff_{OPAQUE}": "skip"})
    return with_effect(decided, OPAQUE, status=EffectStatus.FAILED, review=b'{"decision":"skip"}')


RIGHT: dict[str, Callable[[Evidence], Evidence]] = {
    "all is well": lambda good: good,
    "a read was done twice": lambda good: arrived_again(good, LOOKED),
    "a key was given twice": lambda good: arrived_again(good, KEYED, performed=False),
    "an opaque effect failed, and its agent was told": lambda good: failed_but_shown(good, OPAQUE),
    "a keyed effect failed, and its agent was told": lambda good: failed_but_shown(good, KEYED),
    "a keyed effect ended its agent": lambda good: with_effect(
        ended_by_a_failure(good), KEYED, status=EffectStatus.FAILED
    ),
    "a person left it out": skipped,
    "a brittle agent failed": ended_by_a_failure,
}

WRONG: dict[str, tuple[Kind, Callable[[Evidence], Evidence]]] = {
    "an opaque effect was done twice": (Kind.REPEATED, lambda good: arrived_again(good, OPAQUE)),
    "a verifiable effect was done twice": (Kind.REPEATED, lambda good: arrived_again(good, VERIFIABLE)),
    "a keyed effect was done with two keys": (Kind.REPEATED, lambda good: arrived_again(good, KEYED)),
    "a transactional effect was done twice": (
        Kind.REPEATED,
        lambda good: msgspec.structs.replace(good, bookings={BOOKED: 2}),
    ),
    "what was done did not happen": (Kind.IMAGINED, lambda good: never_arrived(good, KEYED)),
    "what was read was never asked for": (Kind.IMAGINED, lambda good: never_arrived(good, LOOKED)),
    "the ledger knows nothing of it": (
        Kind.LOST,
        lambda good: msgspec.structs.replace(
            good, effects=[one for one in good.effects if one.occurrence != f"id:{OPAQUE}"]
        ),
    ),
    "a verifiable effect happened and failed": (
        Kind.HIDDEN,
        lambda good: failed_but_shown(good, VERIFIABLE),
    ),
    "a keyed effect failed, and its agent was not told": (
        Kind.HIDDEN,
        lambda good: with_effect(good, KEYED, status=EffectStatus.FAILED),
    ),
    "an opaque effect ended its agent, and no person looked at it": (
        Kind.HIDDEN,
        lambda good: with_effect(ended_by_a_failure(good), OPAQUE, status=EffectStatus.FAILED),
    ),
    "an opaque effect failed, and its agent was not told": (
        Kind.HIDDEN,
        lambda good: with_effect(good, OPAQUE, status=EffectStatus.FAILED),
    ),
    "an intent was left": (Kind.OPEN, lambda good: with_effect(good, OPAQUE, status=EffectStatus.INTENT)),
    "a review was left": (Kind.OPEN, lambda good: with_effect(good, OPAQUE, status=EffectStatus.UNKNOWN)),
    "a result changed": (Kind.CHANGED, lambda good: with_told(good, LOOKED, "other", is_acknowledged=False)),
    "a failure became a result": (
        Kind.CHANGED,
        lambda good: msgspec.structs.replace(good, acknowledged=[Told(OPAQUE, f"{FAILED}OSError")]),
    ),
    "a result was forgotten": (Kind.LOST, lambda good: with_agent(good, told=[])),
    "a decision was forgotten": (
        Kind.LOST,
        lambda good: msgspec.structs.replace(good, decided={f"eff_{OPAQUE}": "retry"}),
    ),
    "a patient agent failed": (Kind.ENDED, lambda good: with_agent(good, status=TaskStatus.FAILED)),
    "an agent left something out": (
        Kind.ENDED,
        lambda good: with_agent(good, told=good.agents[PATIENT].told[1:]),
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_may_be_is_not_found_wrong(case: str) -> None:
    assert Judge(RIGHT[case](good_evidence())).wrongs() == []


@pytest.mark.parametrize("case", WRONG)
def test_what_must_not_be_is_found_and_shown_with_the_seed(case: str) -> None:
    kind, spoil = WRONG[case]
    judge = Judge(spoil(good_evidence()))

    wrongs = judge.wrongs()
    story = judge.story(wrongs)

    assert kind in {wrong.kind for wrong in wrongs}
    assert "HOLDFAST_SEED=7" in story
    assert all(wrong.subject in story for wrong in wrongs)


def test_the_story_of_a_repeat_has_what_the_server_and_the_ledger_know() -> None:
    judge = Judge(arrived_again(good_evidence(), OPAQUE))

    story = judge.story(judge.wrongs())

    assert story.count("server: performed") == 2
    assert f"ledger: opaque eff_{OPAQUE} of task_1, run_1" in story
    assert f"told:   did {OPAQUE}" in story


def test_every_agent_has_operations_of_every_class_and_some_are_brittle() -> None:
    keys = [key_of(1, number) for number in range(AGENTS)]

    assert all(len(set(ops_of(key))) == len(ops_of(key)) for key in keys)
    assert 0 < sum(map(is_brittle, keys)) < AGENTS / 2
