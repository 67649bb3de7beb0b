"""Ids sort by time, have one shape, and nothing that could be a path or SQL passes for one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import BadInput
from holdfast.core.ids import (
    check_id,
    is_whole_id,
    new_boot_id,
    new_checkpoint_id,
    new_effect_id,
    new_id,
    new_run_id,
    new_task_id,
    new_token,
)
from holdfast.core.redaction import redact, redact_name, redact_text
from holdfast.core.secret_scanner import holds_secret

NOW = datetime(2031, 5, 4, 3, 2, 1, 999_000, tzinfo=UTC)
MOMENTS = st.integers(min_value=0, max_value=253_402_300_799_999_999).map(from_micros)  # up to the year 9999


@given(MOMENTS, st.integers(min_value=1, max_value=10**9))
def test_an_id_made_later_sorts_later(moment: datetime, milliseconds: int) -> None:
    try:
        later = moment + timedelta(milliseconds=milliseconds)
    except OverflowError:
        later = datetime.max.replace(tzinfo=UTC)
    if later - moment < timedelta(milliseconds=1):
        return

    assert new_id("task", moment) < new_id("task", later)


@given(MOMENTS)
def test_an_id_has_its_prefix_and_26_letters_without_look_alikes(moment: datetime) -> None:
    assert re.fullmatch(r"task_[0-9a-hjkmnp-tv-z]{26}", new_id("task", moment))


def test_each_noun_has_its_own_prefix() -> None:
    made = [new_task_id(NOW), new_run_id(NOW), new_checkpoint_id(NOW), new_boot_id(NOW)]

    assert [one.split("_")[0] for one in made] == ["task", "run", "ckpt", "boot"]


@given(MOMENTS, st.integers(min_value=64, max_value=10**12))
def test_an_effect_begun_later_sorts_later_and_looks_like_any_other_id(moment: datetime, micros: int) -> None:
    first, key = to_micros(moment), "ff" * 16
    one, two = new_effect_id(first, key), new_effect_id(first + micros, "00" * 16)

    assert one < two
    assert is_whole_id("eff", one)
    assert is_whole_id("eff", two)
    assert check_id("effect", one) == one


def test_ids_of_one_millisecond_differ() -> None:
    assert len({new_task_id(NOW) for _ in range(10_000)}) == 10_000


# Words by which the scanner knows the name of a secret, if they have no i, l, o and u: an id has none.
WORDS = ["pwd", "pw", "pw7", "pass", "passwd", "passw0rd", "passphrase", "pgpass", "sshpass", "secret", "key"]
CONTEXTS = ['{"of":"%s:list"}', '{"%s": "waiting"}', "%s: waiting", "[%s=1]", "see %s.", "%s"]


@pytest.mark.parametrize("word", WORDS)
def test_an_id_that_reads_like_the_name_of_a_secret_is_none_wherever_the_word_stands(word: str) -> None:
    for start in range(1, 27 - len(word)):  # the first character is a digit until the year 10889
        made = "run_" + "0123456789abcdefghjkmnpqrs"[:start] + word.ljust(26 - start, "z")
        assert is_whole_id("run", made)
        for context in CONTEXTS:
            text = context % made
            assert not holds_secret(text.encode()), text
            assert redact_text(text) == text
        assert redact({made: "waiting"}) == {made: "waiting"}
        assert redact_name(made) == made


@given(MOMENTS)
def test_no_id_looks_like_a_secret(moment: datetime) -> None:
    made = new_run_id(moment)

    assert made[4] in "01234567"
    assert not holds_secret(f'{{"of":"{made}:list"}}'.encode())


@pytest.mark.parametrize(
    "text", ["password=%s", '{"api_key": "%s"}', "x_%s_pwd: swordfish", "Bearer %s", "gh%s"]
)
def test_an_id_hides_no_secret_beside_it(text: str) -> None:
    assert holds_secret((text % "p_01abcdefghjkmpwd0123456789").encode())
    assert holds_secret((text % "p_01abcdefghjkmpwd0123456789" + " " * 2_000_000).encode())


def test_the_same_moment_in_another_zone_gives_the_same_time_part() -> None:
    elsewhere = NOW.astimezone(tz=None)

    assert new_id("task", NOW)[:14] == new_id("task", elsewhere)[:14]


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError):
        new_id("task", NOW.replace(tzinfo=None))


def test_an_id_we_made_is_accepted() -> None:
    task_id = new_task_id(NOW)

    assert check_id("task", task_id) is task_id


def test_tokens_differ_and_are_hexadecimal() -> None:
    tokens = {new_token() for _ in range(1000)}

    assert len(tokens) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{24}", token) for token in tokens)


@pytest.mark.parametrize("value", ["a", "0", "_", "-", "task_1", "a" * 64])
def test_what_could_be_an_id_passes(value: str) -> None:
    assert check_id("task", value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "a" * 65,
        "Task_1",
        "task_1\n",
        "\ntask_1",
        "task_1\x00",
        "../../etc/passwd",
        "task/1",
        "task.db",
        "' OR 1=1 --",
        'a"b',
        "a;b",
        "a%b",
        "a*",
        "~",
        "täsk",
        "tаsk",  # noqa: RUF001 - a Cyrillic letter that looks like ours
        "１",  # noqa: RUF001 - a digit, but not one of ours
        "a\u202eb",
        "\ud800",
        "a" * 1_000_000,
        None,
        1,
        b"task_1",
        ["task_1"],
        {},
        True,
    ],
    ids=lambda value: f"{type(value).__name__} {ascii(value)[:20]}",
)
def test_what_cannot_be_an_id_is_refused_and_the_field_is_named(value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        check_id("task_id", value)

    assert refusal.value.field == "task_id"
    assert len(str(refusal.value)) < 200


@given(st.one_of(st.text(), st.binary(), st.integers(), st.none(), st.lists(st.text())))
def test_no_value_passes_that_has_another_shape(value: object) -> None:
    try:
        accepted = check_id("id", value)
    except BadInput:
        return

    assert re.fullmatch(r"[a-z0-9_-]{1,64}", accepted)
