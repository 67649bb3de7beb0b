"""Settings that are edited while the gateway runs: none is missed, and what is wrong ends nothing."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.files import load
from holdfast.config.gateway import Config
from holdfast.core.errors import SettingsError
from holdfast.gateway import reload
from holdfast.gateway.reload import Reload
from tests.engine.carriers import soon, until


class Desk:
    """A home with settings, and what became of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.write(90)
        self.applied: list[float] = []
        self.restarts: list[list[str]] = []
        self.service = Reload(
            home,
            {},
            load(home, {}),
            overrides={},
            on_live=self._apply,
            on_restart=self.restarts.append,
        )

    def _apply(self, config: Config) -> None:
        self.applied.append(config.gateway.restart.drain_timeout_s)

    def write(self, drain_timeout_s: object, **more: object) -> None:
        lines = "".join(f"{name} = {value}\n" for name, value in more.items())
        text = f"[gateway]\n{lines}[gateway.restart]\ndrain_timeout_s = {drain_timeout_s}\n"
        (self.home / "holdfast.toml").write_text(text)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]


async def test_an_edit_during_the_start_is_applied(desk: Desk) -> None:
    desk.write(10)

    await desk.service.look()

    assert desk.applied == [10]


async def test_an_edit_while_another_is_read_is_applied(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_slowly(*given: Any) -> Any:
        loaded = load(*given)
        if not desk.applied:
            desk.write(400)
        return loaded

    monkeypatch.setattr(reload, "load", load_slowly)
    desk.write(30)

    await desk.service.look()
    await desk.service.look()

    assert desk.applied == [30, 400]


async def test_settings_that_stay_are_read_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def load_and_count(*given: Any) -> Any:
        read.append(given)
        return load(*given)

    monkeypatch.setattr(reload, "load", load_and_count)
    (desk.home / "ledger.db").write_bytes(b"")

    for number in range(3):
        await desk.service.look()
        (desk.home / "ledger.db").write_bytes(bytes(number))

    assert len(read) == 1
    assert desk.applied == []


async def test_a_document_of_a_folder_that_was_not_there_counts(desk: Desk) -> None:
    await desk.service.look()
    (desk.home / "config").mkdir()
    (desk.home / "config" / "agents.toml").write_text('[echo]\ncommand = ["cat"]\n')

    await desk.service.look()

    assert [key for keys in desk.restarts for key in keys] != []


async def test_wrong_settings_are_told_once_and_right_ones_count_again(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.write('"soon"')
    for _ in range(3):
        await desk.service.look()
    assert desk.applied == []
    assert ["the settings are not applied" in one for one in told(caplog)] == [True]

    desk.write(20)
    await desk.service.look()

    assert desk.applied == [20]


async def test_what_could_not_be_read_for_a_while_is_read_then(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: Any) -> Any:
        why = OSError(errno.EMFILE, "Too many open files")
        raise SettingsError("holdfast.toml: Too many open files") from why

    desk.write(20)
    with monkeypatch.context() as away:
        away.setattr(reload, "load", refuse)
        for _ in range(3):
            await desk.service.look()
    assert (desk.applied, len(told(caplog))) == ([], 1)

    await desk.service.look()

    assert desk.applied == [20]


async def test_a_process_without_a_free_descriptor_goes_on_looking(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    desk.write(20)
    with monkeypatch.context() as away:
        away.setattr(os, "scandir", refuse)
        for _ in range(3):
            await desk.service.look()
    assert ["cannot be looked at" in one for one in told(caplog)] == [True]

    await desk.service.look()

    assert desk.applied == [20]


async def test_what_cannot_be_applied_is_tried_again_and_told_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    real, desk.service._on_live = desk.service._on_live, lambda _: 1 / 0  # type: ignore[assignment]
    desk.write(20)
    for _ in range(3):
        await desk.service.look()
    assert len(told(caplog)) == 1

    desk.service._on_live = real
    await desk.service.look()

    assert desk.applied == [20]


async def test_the_service_looks_until_it_is_stopped(desk: Desk) -> None:
    running = asyncio.ensure_future(desk.service.run())
    desk.write(20)
    await until(lambda: desk.applied == [20])
    desk.write(300)
    await until(lambda: desk.applied == [20, 300])

    desk.service.stop()
    await soon(running)
