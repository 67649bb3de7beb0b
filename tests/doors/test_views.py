"""What is shown: clean, bounded, redacted, and the same every time."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.claim import Boot
from holdfast.core.events import Event, EventKind
from holdfast.core.ids import BootId
from holdfast.core.task import Failure
from holdfast.views.events import EventView
from holdfast.views.health import BootView
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.sessions import MAX_MESSAGE_CHARS
from holdfast.views.tasks import TaskView
from holdfast.views.text import _unique, bounded, clean, clean_json, one_line
from tests.builders import START, a_task
from tests.doors.calls import CANARIES, HOSTILE, UNFIT

any_text = st.text(st.characters(exclude_categories=()))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("windows\r\nlines", "windows\nlines"),
        ("over\rwritten", "overwritten"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[?25l\x1b[2J\x1b[1;1Hhome", "home"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x9b31mred\x9d0;t\x9ctext", "redtext"),
        ("\x1b]0;never closed", "0;never closed"),
        ("\x1bc\x1b7\x1b(Btext", "text"),
        ("\u202egnp.exe\u202c", "gnp.exe"),
        ("\u2066\u2069\u200e\u200f\u061c\u200b\ufeff\u2028x", "x"),
        ("half \ud800 pair", "half \ufffd pair"),
        (
            "👩\u200d🚀 and \u0646\u0645\u06cc\u200c\u062e stay",
            "👩\u200d🚀 and \u0646\u0645\u06cc\u200c\u062e stay",
        ),
        ("Zürich — 東京 — café", "Zürich — 東京 — café"),
        ("tag\U000e0041s", "tags"),
    ],
    ids=ascii,
)
def test_a_text_loses_what_a_terminal_obeys_and_nothing_else(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(any_text)
def test_no_text_whatever_comes_out_unfit(text: str) -> None:
    assert UNFIT.search(clean(text)) is None
    assert "\n" not in one_line(text)


@pytest.mark.parametrize("piece", ["\x9d", "\x1b]", "\x9b0", "\x1b ", "\x9e\x9d\x90"])
def test_escapes_without_an_end_cost_no_square(piece: str) -> None:
    """Or the test takes an hour, and so would a command that looks at a task."""
    assert "\x1b" not in clean(piece * 100_000)


@given(any_text)
def test_to_clean_twice_is_to_clean_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_every_control_and_every_mark_of_direction_is_unfit() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    unfit = [
        sign
        for sign in every
        if unicodedata.category(sign) == "Cc"
        or unicodedata.bidirectional(sign) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    ]

    assert [hex(ord(sign)) for sign in unfit if clean(sign) and sign not in "\n\t"] == []


def test_a_secret_in_two_pieces_is_redacted_when_they_come_together() -> None:
    canary = CANARIES[0]

    assert canary not in clean(f"x {canary[:9]}\x1b[0m{canary[9:]} y")


@given(any_text, st.integers(1, 50))
def test_a_text_is_never_longer_than_it_may_be(text: str, limit: int) -> None:
    assert len(bounded(text, limit)) <= limit
    assert len(one_line(text, limit)) <= limit


@given(any_json)
def test_json_keeps_its_shape(value: object) -> None:
    shown = clean_json(value)

    assert type(shown) is type(value)
    assert not isinstance(shown, (dict, list)) or len(shown) == len(value)  # type: ignore[arg-type]
    assert UNFIT.search(msgspec.json.encode(shown).decode()) is None


class _Key(str):
    """Counts how often another name was made of it."""

    made = 0

    def __format__(self, spec: str) -> str:
        _Key.made += 1
        return super().__format__(spec)


def test_many_keys_that_become_one_cost_no_square() -> None:
    _Key.made = 0

    keys = _unique([_Key("tide") for _ in range(1000)])

    assert len(set(keys)) == 1000
    assert _Key.made < 1000


def test_a_number_that_is_taken_is_given_to_no_other_key() -> None:
    assert _unique(["a", "a#2", "a", "a#2", "a"]) == ["a", "a#2", "a#3", "a#2#2", "a#4"]


def test_the_strings_of_a_value_are_searched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[str] = []

    def noting(text: str) -> str:
        alone.append(text)
        return text

    monkeypatch.setattr("holdfast.views.text.redact_text", noting)

    shown = clean_json({"pwd=ab1": ["pwd"] * 100, "b": "password: hunter2Xy9Zq7"})

    assert "hunter2" not in str(shown)
    assert alone == []


def test_a_secret_at_the_cut_leaves_no_beginning() -> None:
    text = f"{'tide ' * 13_105} {CANARIES[0]} tide"
    assert 0 < MAX_MESSAGE_CHARS - text.index(CANARIES[0]) < len(CANARIES[0])

    shown = bounded(text, MAX_MESSAGE_CHARS)

    assert CANARIES[0][:6] not in shown


def test_keys_that_become_one_are_numbered() -> None:
    assert clean_json({"a": 1, "a\x00": 2, "a\x01": 3}) == {"a": 1, "a#2": 2, "a#3": 3}


@given(any_json)
def test_a_payload_can_always_be_shown(value: object) -> None:
    try:
        encoded = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return

    view = PayloadView.of(encoded)

    assert view.size_bytes == len(encoded)
    assert UNFIT.search(view.preview) is None
    assert len(msgspec.json.encode(view)) < len(encoded) * 8 + 20_000


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\xfe", b"\x00zstd:abc", b"[" * 10_000], ids=len)
def test_a_payload_that_is_no_json_is_shown_by_its_beginning(payload: bytes) -> None:
    view = PayloadView.of(payload)

    assert view.is_whole is False
    assert view.value is None
    assert UNFIT.search(view.preview) is None


@pytest.mark.parametrize("filling", [80_000, 2_000_000], ids=["large", "very large"])
@pytest.mark.parametrize(
    "value",
    [
        {"passwords": ["hunter2Xy9Zq7"]},
        ["sshpass", "-p", "hunter2Xy9Zq7", "ssh", "bob@tides"],
        {"pass": "hunter2Xy9Zq7"},
        {"password": 712345678},
        ["curl", "-u", "bob:hunter2Xy9Zq7", "tides.example"],
        ["--password", "hunter2Xy9Zq7"],
        {"credentials": {"value": "hunter2Xy9Zq7"}},
        {"api_key": {"value": "hunter2Xy9Zq7"}},
        {"cookie": "hunter2Xy9Zq7"},
        {"file": "tides: 1\npassword:\n  hunter2Xy9Zq7\n"},
        {"tides": [{"pass": "hunter2Xy9Zq7"}]},
    ],
    ids=str,
)
def test_a_large_payload_shows_no_more_than_a_small_one(value: Any, filling: int) -> None:
    """Cut out of its structure, a secret does not stand beside its name."""
    filler = "tide " * (filling // 5)
    large = [*value, filler] if isinstance(value, list) else value | {"filler": filler}
    small = PayloadView.of(msgspec.json.encode(value))

    view = PayloadView.of(msgspec.json.encode(large))

    for secret in ("hunter2Xy9Zq7", "712345678"):
        assert (secret in view.preview) <= (secret in small.preview)
    assert (view.is_whole, view.value) == (False, None)
    assert len(view.preview) <= 2000


def test_a_large_payload_with_a_secret_still_shows_how_it_begins() -> None:
    payload = msgspec.json.encode({"tides": [1, 2], "filler": "tide " * 20_000, "password": "hunter2Xy9Zq7"})

    assert PayloadView.of(payload).preview.startswith('{"tides":[1,2],"filler":"tide ')


def test_a_large_payload_without_a_secret_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[object] = []
    monkeypatch.setattr("holdfast.views.payloads.clean_json", decoded.append)

    view = PayloadView.of(msgspec.json.encode(["a tide"] * 20_000))

    assert view.preview.startswith('["a tide","a tide"')
    assert decoded == []


def test_a_very_large_payload_is_not_redacted_for_a_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[object] = []
    monkeypatch.setattr("holdfast.views.payloads.clean_json", decoded.append)
    payload = msgspec.json.encode({"password": "hunter2Xy9Zq7", "filler": "tide " * 300_000})

    assert PayloadView.of(payload).preview == f"[redacted: {len(payload):,} bytes]"
    assert decoded == []


def test_what_json_escapes_in_a_large_payload_is_taken_out_too() -> None:
    half, rest = CANARIES[0][:20], CANARIES[0][20:]
    payload = msgspec.json.encode([f"{half}\x1b[0m{rest}", "tide " * 20_000])

    view = PayloadView.of(payload)

    assert view.is_whole is False
    assert rest not in view.preview
    assert "\\u001b" not in view.preview


def test_a_failure_is_shown_with_its_facts() -> None:
    failure = Failure(
        kind=HOSTILE, message=HOSTILE * 1000, facts={HOSTILE: [CANARIES[1]], "token": "abcdefgh1"}
    )

    view = FailureView.of(failure)

    encoded = msgspec.json.encode(view).decode()
    assert UNFIT.search(encoded) is None
    assert len(view.message) <= 4000
    assert CANARIES[1] not in encoded
    assert view.facts["token"] == "[redacted:assignment]"


def test_times_are_iso_and_utc() -> None:
    view = TaskView.of(a_task())

    assert msgspec.to_builtins(view)["createdAt"] == "2026-01-01T00:00:00Z"


def test_a_very_long_goal_is_cut() -> None:
    assert len(TaskView.of(a_task(goal="tides " * 10_000)).goal) <= 2000


def test_an_event_and_a_boot_are_shown_clean() -> None:
    event = Event(
        position="0.1",
        at=START,
        kind=EventKind.RUN_WOKEN,
        task_id=HOSTILE,
        subject_id=HOSTILE,
        facts={HOSTILE: HOSTILE},
    )
    boot = Boot(id=BootId(HOSTILE), host=HOSTILE, pid=1, role=HOSTILE, started_at=START)

    shown = msgspec.json.encode([EventView.of(event), BootView.of(boot, is_alive=None)]).decode()

    assert UNFIT.search(shown) is None
