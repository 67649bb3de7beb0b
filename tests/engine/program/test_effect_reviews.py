"""What ledgers hold about decisions of people stays readable when code moves."""

from __future__ import annotations

from holdfast.engine.journal.codec import failure_of
from holdfast.engine.program.effect_reviews import COMPENSATED, Compensated


def test_the_failure_of_a_compensated_effect_has_the_kind_that_older_ledgers_hold() -> None:
    stored = failure_of(Compensated("a person compensated it"))

    assert stored.kind == COMPENSATED == "holdfast.engine.effects.Compensated"
