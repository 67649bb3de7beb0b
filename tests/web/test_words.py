"""The words of the pages: counts with their nouns, and refusals as a person reads them."""

from __future__ import annotations

import pytest

from holdfast.web.rendering import ticked
from holdfast.web.words import in_plain_words, plural


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (plural(1, "step"), "1 step"),
        (plural(0, "step"), "0 steps"),
        (plural(1224, "turn"), "1,224 turns"),
        (plural(1, "effect to decide", "effects to decide"), "1 effect to decide"),
        (plural(2, "effect to decide", "effects to decide"), "2 effects to decide"),
    ],
)
def test_a_count_has_its_noun(told: str, expected: str) -> None:
    assert told == expected


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (
            "invalid campaigns.milestone params: at /name: expected `str` matching regex '^[a-z]+$'",
            "the field “name” has characters or a form that is not allowed here",
        ),
        (
            "invalid gateway.restart params: at /reason: expected `str` of length >= 1",
            "the field “reason” must not be empty",
        ),
        (
            "invalid ledger.cancel params: at /reason: expected `str` of length <= 500",
            "the field “reason” is too long: at most 500 characters",
        ),
        (
            "invalid cron.run params: at root: must have required property 'id'",
            "the field “id” is missing",
        ),
        (
            "question ques_01m7 is answered and cannot become answered again",
            "this question is answered already",
        ),
        ("the gateway is starting; try again in a moment", "the gateway is starting; try again in a moment"),
    ],
)
def test_a_refusal_is_told_in_plain_words(refusal: str, expected: str) -> None:
    assert in_plain_words(refusal) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `holdfast tasks list` first", "run <code>holdfast tasks list</code> first"),
        ("`<b>` and <i>", "<code>&lt;b&gt;</code> and &lt;i&gt;"),
        ("one ` alone <b>", "one ` alone &lt;b&gt;"),
        ("", ""),
    ],
)
def test_a_command_is_shown_as_code_and_nothing_else_is_markup(text: str, expected: str) -> None:
    assert str(ticked(text)) == expected
