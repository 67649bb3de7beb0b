"""Where the manifest is written: at the home, at a whole path, and below the user's own directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.gateway.gateways import config_with, document_of, hosted


@pytest.mark.parametrize("named", ["last.json", "~/last.json", "{user}/last.json"])
async def test_a_manifest_is_written_and_consumed_where_the_settings_say(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    home, user = tmp_path / "home", tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    config = config_with(manifest_path=named.format(user=user))
    place = home if named == "last.json" else user

    async with hosted(store, clock, home, config=config) as one:
        await one.restart()
        assert await one.ended()
    written = document_of(place / "last.json")
    async with hosted(store, clock, home, config=config):
        consumed = document_of(place / "last.json")

    assert written["reason"] == "why not"
    assert "consumedAt" not in written
    assert consumed["consumedAt"]
    assert not (home / "~").exists()
