"""What is left of a step's result when its turn has committed: how it begins, without its secrets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.redaction import holds_secret
from holdfast.engine.program.turn_summaries import preview_of

SECRET = "hunter2Xy9Zq7"


@pytest.mark.parametrize("filling", [0, 10_000, 200_000])
@pytest.mark.parametrize(
    "value",
    [
        {"passwords": [SECRET]},
        ["sshpass", "-p", SECRET, "ssh", "bob@tides"],
        {"pass": SECRET},
        ["curl", "-u", f"bob:{SECRET}", "tides.example"],
        ["--password", SECRET],
        {"credentials": {"value": SECRET}},
        {"api_key": {"value": SECRET}},
        {"cookie": SECRET},
        {"file": f"tides: 1\npassword:\n  {SECRET}\n"},
    ],
    ids=str,
)
def test_a_large_result_shows_no_more_than_a_small_one(value: Any, filling: int) -> None:
    filler = "tide " * (filling // 5)
    large = [*value, filler] if isinstance(value, list) else value | {"filler": filler}

    shown = preview_of(msgspec.json.encode(large))

    assert (SECRET in shown) <= (SECRET in preview_of(msgspec.json.encode(value)))


def test_a_large_result_with_a_secret_shows_only_its_size() -> None:
    result = msgspec.json.encode({"tides": "a tide " * 2_000, "password": SECRET})

    assert preview_of(result) == f"[redacted: {len(result):,} bytes]"


def test_a_large_result_without_a_secret_shows_how_it_begins() -> None:
    assert preview_of(msgspec.json.encode(["a tide"] * 20_000)).startswith('["a tide","a tide"')


def test_a_failure_is_redacted_as_text() -> None:
    shown = preview_of(b'!{"kind":"ValueError","message":"password=' + SECRET.encode() + b'"}')

    assert shown.startswith('!{"kind":"ValueError"')
    assert SECRET not in shown


def test_of_a_very_large_result_only_the_beginning_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched on an event loop."""
    searched: list[int] = []

    def noting(encoded: bytes) -> bool:
        searched.append(len(encoded))
        return holds_secret(encoded)

    monkeypatch.setattr("holdfast.engine.program.turn_summaries.holds_secret", noting)
    preview_of(msgspec.json.encode(["a tide"] * 1_000_000))

    assert sum(searched) <= 64 * 1024
