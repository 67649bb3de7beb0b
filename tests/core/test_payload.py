"""What may be stored. Everything else is refused by name, and nothing is changed on the way."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
import uuid
from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInput, PayloadTooLarge
from holdfast.core.payload import (
    MAX_DEPTH,
    MAX_NAME_CHARS,
    MAX_PAYLOAD_BYTES,
    MAX_TEXT_BYTES,
    check_name,
    check_number,
    check_text,
    check_words,
    clean_text,
    decode_payload,
    digest_of,
    encode_payload,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


class Shade(StrEnum):
    RED = "red"


class Reply(msgspec.Struct):
    text: str
    score: float = 0.5


@dataclasses.dataclass
class Dot:
    x: object


def nested(depth: int, *, leaf: object = None) -> object:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def cyclic_list() -> object:
    value: list[object] = []
    value.append(value)
    return value


def cyclic_dict() -> object:
    value: dict[str, object] = {}
    value["self"] = value
    return value


def crowd_of_one(doublings: int) -> object:
    """A few lists in memory, 2 ** doublings values on paper."""
    value: object = 1
    for _ in range(doublings):
        value = [value, value]
    return value


def shown(value: object) -> str:
    return type(value).__name__


# --- text


@pytest.mark.parametrize(
    "text", ["x", "two\nlines\tand a tab\r\n", "größer", "目標", "👩‍🚀", "a" * MAX_TEXT_BYTES]
)
def test_ordinary_text_comes_back_unchanged(text: str) -> None:
    assert check_text("goal", text) == text


@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"x", ["x"], {"x": 1}, object()], ids=shown)
def test_what_is_not_text_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        check_text("goal", value)

    assert refusal.value.field == "goal"
    assert type(value).__name__ in refusal.value.problem


@pytest.mark.parametrize("text", ["", " ", "\n\t \r\n", "\u3000"])
def test_empty_text_is_refused_unless_it_may_be_empty(text: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_text("goal", text)

    assert refusal.value.field == "goal"
    assert check_text("note", text, may_be_empty=True) == text


@pytest.mark.parametrize(
    "character",
    [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"]
    + [chr(code) for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))],
    ids=lambda character: f"U+{ord(character):04X}",
)
def test_control_and_bidirectional_characters_are_refused_with_code_and_place(character: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_text("goal", f"drop{character}table")

    assert refusal.value.field == "goal"
    assert f"U+{ord(character):04X} at 4" in refusal.value.problem
    assert character not in str(refusal.value)


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDFFF], ids=hex)
def test_half_of_a_surrogate_pair_is_refused(code: int) -> None:
    for check in (check_text, check_name, encode_payload):
        with pytest.raises(BadInput) as refusal:
            check("goal", f"a{chr(code)}b")

        assert refusal.value.field == "goal"
        assert str(refusal.value).encode()


def test_text_over_the_cap_is_refused_with_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge) as refusal:
        check_text("goal", "ä" * 6, max_bytes=11)

    assert (refusal.value.field, refusal.value.size_bytes, refusal.value.max_bytes) == ("goal", 12, 11)


def test_a_secret_in_text_is_removed_before_anyone_sees_it() -> None:
    kept = check_text("goal", "deploy with AKIAABCDEFGHIJKLMNOP please")

    assert "AKIA" not in kept
    assert kept.startswith("deploy with ")


# --- names


@pytest.mark.parametrize("name", ["a", "agent:main:inbox", "a b", "x" * MAX_NAME_CHARS, "ü" * MAX_NAME_CHARS])
def test_a_name_is_one_short_line(name: str) -> None:
    assert check_name("owner", name) == name


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "a\nb",
        "a\rb",
        "a\tb",
        "x" * (MAX_NAME_CHARS + 1),
        "x" * 10_000_000,
        "a\x1b[2Jb",
        None,
        7,
        b"a",
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        check_name("owner", value)

    assert refusal.value.field == "owner"
    assert len(str(refusal.value)) < 300


# --- numbers


@pytest.mark.parametrize("number", [0, 5, 9])
def test_a_number_within_its_bounds_is_accepted(number: int) -> None:
    assert check_number("priority", number, low=0, high=9) == number


@pytest.mark.parametrize(
    "value",
    [-1, 10, 2**64, 10**5000, -(10**5000), True, False, 1.0, float("nan"), "5", None, b"5", nested(100_000)],
    ids=shown,
)
def test_any_other_number_is_refused_whatever_its_size(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        check_number("priority", value, low=0, high=9)

    assert refusal.value.field == "priority"
    assert "from 0 to 9" in refusal.value.problem


# --- payloads


@given(JSON)
def test_a_json_value_comes_back_as_it_went_in(value: object) -> None:
    encoded = encode_payload("result", value)

    assert decode_payload(encoded) == value
    assert encode_payload("result", decode_payload(encoded)) == encoded


@pytest.mark.parametrize(
    ("value", "comes_back_as"),
    [
        ((1, 2), [1, 2]),
        (Shade.RED, "red"),
        ({Shade.RED: 1}, {"red": 1}),
        (Reply(text="hello"), {"text": "hello", "score": 0.5}),
        (Dot(x=[1]), {"x": [1]}),
        (dt.datetime(2031, 1, 2, tzinfo=dt.UTC), "2031-01-02T00:00:00Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("a\x00b\u202e", "a\x00b\u202e"),
        (2**64, 2**64),
        (-0.0, -0.0),
        ({}, {}),
        ([], []),
        (None, None),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_records_and_plain_values_have_one_json_form(value: object, comes_back_as: object) -> None:
    assert decode_payload(encode_payload("result", value)) == comes_back_as


def hostile_values() -> Iterable[object]:
    yield from (float("nan"), float("inf"), -float("inf"))
    yield from (b"bytes", bytearray(b"bytes"), memoryview(b"bytes"))
    yield from ({1, 2}, frozenset({1}))
    yield from ({1: "x"}, {None: 1}, {True: 1}, {1.5: 1}, {(1, 2): 1}, {b"k": 1}, {"ok": {2: 1}})
    yield from ({"a\ud800": 1}, {"a": "\udfff"}, ["\ud800"])
    yield from (object(), object, 1j, print, (number for number in range(3)), range(3), type)
    yield from (cyclic_list(), cyclic_dict(), nested(MAX_DEPTH + 1), nested(100_000))
    yield from (Reply(text="x", score=float("nan")), Reply(text="\ud800"))
    yield from (Dot(x={1, 2}), Dot(x=float("inf")), Dot(x=nested(100_000)), Dot(x={1: 1}))
    yield from (10**5000, [10**5000])


@pytest.mark.parametrize("value", list(hostile_values()), ids=shown)
def test_what_json_cannot_hold_is_refused_and_the_field_is_named(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        encode_payload("result", value)

    assert refusal.value.field == "result"
    assert str(refusal.value).startswith("result: ")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("hide", [lambda bad: [1, [bad]], lambda bad: {"a": {"b": bad}}, lambda bad: (bad,)])
def test_one_bad_value_deep_inside_is_found(hide: Callable[[object], object]) -> None:
    for bad in (float("nan"), b"x", {1}, "\ud800", object()):
        with pytest.raises(BadInput):
            encode_payload("result", hide(bad))


def test_the_deepest_allowed_value_is_stored_and_read_again() -> None:
    deepest = nested(MAX_DEPTH)

    assert decode_payload(encode_payload("result", deepest)) == deepest


def test_too_deep_is_refused_also_when_the_stack_is_nearly_full() -> None:
    def dive(levels: int) -> None:
        if levels:
            dive(levels - 1)
            return
        with pytest.raises(BadInput):
            encode_payload("result", nested(MAX_DEPTH + 1))

    frames = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        frames, frame = frames + 1, frame.f_back
    dive(sys.getrecursionlimit() - frames - 80)


def test_a_payload_over_the_cap_is_refused_with_its_size() -> None:
    with pytest.raises(PayloadTooLarge) as refusal:
        encode_payload("result", "x" * MAX_PAYLOAD_BYTES)

    assert refusal.value.size_bytes == MAX_PAYLOAD_BYTES + 2
    assert refusal.value.max_bytes == MAX_PAYLOAD_BYTES
    assert "artifact" in str(refusal.value)


def test_a_payload_of_exactly_the_cap_is_stored() -> None:
    assert len(encode_payload("result", "x" * 98, max_bytes=100)) == 100


def test_a_list_that_holds_itself_over_and_over_is_refused_before_it_is_unfolded() -> None:
    with pytest.raises(PayloadTooLarge):
        encode_payload("result", crowd_of_one(90), max_bytes=1000)


def test_a_secret_in_a_payload_stays_as_it_is() -> None:
    login = {"password": "correct horse", "argv": ["--api-key", "hunter2"], "url": "https://u:pw9@host/"}

    assert decode_payload(encode_payload("arguments", login)) == login


# --- names

TOKEN = "ghp_" + "0aZ9" * 8  # put together here, so that it is none


def test_two_names_that_differ_in_what_is_redacted_stay_two() -> None:
    one, other = check_name("key", f"{TOKEN}abcd"), check_name("key", f"{TOKEN}wxyz")

    assert one != other
    assert TOKEN not in one + other


@pytest.mark.parametrize("name", [f"{TOKEN}abcd", "password=hunter2!", f"{'x' * 140} --api-key {TOKEN}abcd"])
def test_a_redacted_name_finds_itself_again(name: str) -> None:
    redacted = check_name("key", name)

    assert redacted != name
    assert check_name("key", name) == redacted
    assert check_name("key", redacted) == redacted


def test_words_of_a_program_come_back_as_they_were_by_the_rules_of_texts() -> None:
    assert check_words("choice", "password=hunter2!") == "password=hunter2!"
    with pytest.raises(BadInput, match="control character"):
        check_words("choice", "a\x1bb")


# --- digests


PART = st.none() | st.integers(0, 300) | st.binary(max_size=8) | st.text(max_size=8)
PARTS = st.lists(PART, max_size=5)


@given(PARTS, PARTS)
def test_two_lists_of_parts_share_a_digest_only_if_they_are_equal(
    one: list[bytes | str | int | None], other: list[bytes | str | int | None]
) -> None:
    assert (digest_of(*one) == digest_of(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("ab",), ("a", "b")),
        (("",), ()),
        (("", ""), ("",)),
        ((None,), ()),
        ((None,), ("",)),
        ((None,), (b"\x00",)),
        ((None, None), (None,)),
        (("1:a",), ("1", "a")),
        (("a1:b",), ("a", "b")),
        (("-:",), (None,)),
    ],
)
def test_parts_cannot_run_together(one: tuple[str | None], other: tuple[str | None]) -> None:
    assert digest_of(*one) != digest_of(*other)


@given(st.binary(min_size=1, max_size=200), st.integers(min_value=0))
def test_one_flipped_bit_changes_the_digest(body: bytes, place: int) -> None:
    index, bit = place // 8 % len(body), place % 8
    flipped = bytearray(body)
    flipped[index] ^= 1 << bit

    assert digest_of("id", body) != digest_of("id", bytes(flipped))


def test_a_number_is_not_its_digits_and_text_is_not_its_bytes() -> None:
    assert len({digest_of(12), digest_of("12"), digest_of(b"12"), digest_of(None)}) == 4


def test_a_digest_does_not_change_between_versions() -> None:
    """Stored digests are compared for years; this one was written down once."""
    assert digest_of("task_1", 7, None, b"{}").hex() == "4f0edc523580e1d8"


@pytest.mark.parametrize(
    "text",
    ["\x1b[31m{}\x1b[0m", "\x1b[1;31m{}", "\x9b31m{}", "\x07{}", "\x00{}", r"\x1b[31m{}", r"\u001b[31m{}"],
)
def test_colours_and_control_characters_do_not_hide_a_secret_in_an_error(text: str) -> None:
    secret = "sk-" + "ant-" + "a1B2c3D4" * 4

    cleaned = clean_text(f"failed: {text.format(secret)} gone", max_chars=200)

    assert secret not in cleaned
    assert "[redacted:anthropic]" in cleaned


def test_a_colour_in_the_middle_of_a_secret_does_not_hide_it() -> None:
    secret = "sk-" + "ant-" + "a1B2c3D4" * 4

    cleaned = clean_text(f"{secret[:9]}\x1b[31m{secret[9:]}", max_chars=200)

    assert cleaned == "[redacted:anthropic]"
