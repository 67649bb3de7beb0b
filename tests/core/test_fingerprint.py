"""Fingerprints: failures of one cause fall together, whatever numbers, ids and names their messages hold."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fingerprint import MAX_PATTERN_CHARS, fingerprint_of, pattern_of
from holdfast.core.task import Failure

words = st.text(alphabet="abcdefghij ", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("pump 1 does not answer at 10.0.0.17", "pump # does not answer at #"),
        ("no key 'oak' in \"garden\"", "no key '…' in \"…\""),
        ("it doesn't know what the others' trees are", "it doesn't know what the others' trees are"),
        ("task_01m7s8jph8344hn31v9r7vz129 is gone", "task_# is gone"),
        ("no commit deadbeef0 nor 9f2b-4", "no commit # nor #f#b-#"),
        ("4f5e0c6a-0c3b-4a51-9f57-0d6f2f0f1a2b of 2026-11-19T06:40:50.216", "# of #T#"),
        ("  two\n lines ", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_from_one_failure_to_the_next_is_left_out(message: str, pattern: str) -> None:
    assert pattern_of(message) == pattern


@given(st.lists(st.tuples(words, st.integers(0), st.integers(0), words), min_size=1, max_size=5))
def test_messages_that_differ_in_numbers_and_quoted_text_have_one_fingerprint(
    parts: list[tuple[str, int, int, str]],
) -> None:
    one = " ".join(f"{word} {first} of '{quoted}'" for word, first, _, quoted in parts)
    other = " ".join(f"{word} {second} of 'x{quoted}y'" for word, _, second, quoted in parts)

    assert fingerprint_of(Failure(kind="E", message=one)) == fingerprint_of(Failure(kind="E", message=other))


@given(st.text(max_size=190))
def test_a_pattern_of_a_pattern_is_the_same_short_and_without_digits(message: str) -> None:
    pattern = pattern_of(message)

    assert pattern_of(pattern) == pattern
    assert len(pattern) <= MAX_PATTERN_CHARS
    assert re.search(r"\d", pattern) is None


@given(words, words)
def test_other_words_are_another_fingerprint(one: str, other: str) -> None:
    first, second = (fingerprint_of(Failure(kind="E", message=text)) for text in (one, other))

    assert (first.id == second.id) == (one.split() == other.split())


def test_the_place_is_the_innermost_frame_without_its_line() -> None:
    def at(*frames: str, kind: str = "E") -> Failure:
        return Failure(kind=kind, message="broken", facts={"traceback": [*frames], "step": "pick 3"})

    first = fingerprint_of(at("orchard.py:71 in water", "pump2.py:49 in start"))

    assert first.place == "pump2.py in start"
    assert fingerprint_of(at("pump2.py:50 in start")) == first
    assert fingerprint_of(at("pump2.py:49 in stop")).id != first.id
    assert fingerprint_of(at("pump2.py:49 in start", kind="F")).id != first.id
    assert fingerprint_of(at()).place == "pick #"
    assert fingerprint_of(Failure(kind="E", message="m", facts={"traceback": "none"})).place == ""


@pytest.mark.parametrize("text", ["'" * 50_000, "1.2-" * 20_000, "0af" * 20_000, "'a\"b`" * 20_000])
def test_a_long_message_takes_no_long_time(text: str) -> None:
    began = time.monotonic()

    pattern_of(text)

    assert time.monotonic() - began < 1
