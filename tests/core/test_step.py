"""Steps: what tells calls of one name apart."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.core.step import failed_payload, failure_in_payload, occurrence_of, shown_occurrence
from holdfast.core.task import Failure


def test_occurrences_sort_as_their_numbers_do() -> None:
    counts = [*range(1, 1200), 9_999, 10_000, 99_999, 100_000, 10**9]

    occurrences = [occurrence_of(count) for count in counts]

    assert all(one < next_one for one, next_one in pairwise(occurrences))
    assert [int(shown_occurrence(one)) for one in occurrences] == counts


@pytest.mark.parametrize("given", ["id:call_7", "1", "3~0123456789ab", "call::7"])
def test_other_keys_are_shown_as_they_are(given: str) -> None:
    assert shown_occurrence(given) == given


def test_a_stored_failure_is_told_from_every_result() -> None:
    failure = Failure(kind="ValueError", message="no", facts={"step": "send"})

    assert failure_in_payload(failed_payload(failure)) == failure
    assert failure_in_payload(b'{"kind":"ValueError","message":"no"}') is None
