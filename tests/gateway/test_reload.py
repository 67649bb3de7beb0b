"""Settings that are edited while the gateway runs: none is missed, and what is wrong ends nothing."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.files import load
from holdfast.config.sections import Config
from holdfast.core.errors import RestartBlocked, SettingsError
from holdfast.gateway import reload
from holdfast.gateway.reload import Reload
from tests.engine.workers import soon, until


class Desk:
    """A home with settings, and what became of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.write(90)
        self.applied: list[float] = []
        self.restarts: list[list[str]] = []
        self.trials = 0
        # Why the next gateway could not start, if it could not.
        self.trouble: Exception | None = None
        # What happens during a trial.
        self.meanwhile: Callable[[], None] = lambda: None
        self.refused: list[str | None] = []
        self.now = 0.0
        self.service = Reload(
            home,
            {},
            load(home, {}),
            overrides={},
            on_live=self._apply,
            on_trial=self._try,
            on_restart=self._restart,
            on_refused=self.refused.append,
            monotonic=lambda: self.now,
        )

    def _apply(self, config: Config) -> None:
        self.applied.append(config.gateway.restart.drain_timeout_s)

    async def _try(self) -> None:
        self.trials += 1
        if isinstance(self.trouble, SettingsError):
            raise self.trouble
        self.meanwhile()

    async def _restart(self, keys: list[str]) -> None:
        self.restarts.append(keys)
        if self.trouble is not None:
            raise self.trouble

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
    assert ["cannot be read" in one for one in told(caplog)] == [True]

    await desk.service.look()

    assert desk.applied == [20]


async def test_what_cannot_be_applied_is_tried_again_and_told_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    real, desk.service._on_live = desk.service._on_live, lambda _: 1 / 0  # type: ignore[assignment,return-value]
    desk.write(20)
    for _ in range(3):
        await desk.service.look()
    assert len(told(caplog)) == 1

    desk.service._on_live = real
    await desk.service.look()

    assert desk.applied == [20]


# --- what is refused


def agents_of(desk: Desk, *names: str) -> None:
    text = "".join(f'[agents.{name}]\ncallable = "garden:{name}"\n' for name in names)
    (desk.home / "holdfast.toml").write_text(f"[gateway.restart]\ndrain_timeout_s = 90\n{text}")


async def test_a_refused_restart_is_tried_again_though_no_person_touches_the_settings(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.trouble = SettingsError("the next gateway could not start: No module named 'garden'")
    agents_of(desk, "sage")
    for _ in range(120):  # a minute
        await desk.service.look()
        desk.now += 0.5
    # Less and less often: to find out takes a process.
    assert 6 <= desk.trials <= 8
    assert desk.restarts == []
    assert len(told(caplog)) == 1
    assert desk.refused[-1] == f"the settings are not applied: {desk.trouble}"

    desk.trouble = None
    desk.now += reload.LONGEST_PAUSE_S
    await desk.service.look()

    assert desk.restarts == [["agents.sage"]]
    assert desk.refused[-1] is None
    assert "valid again" in caplog.text


async def test_settings_that_say_again_what_holds_ask_for_no_restart(desk: Desk) -> None:
    desk.trouble = SettingsError("the next gateway could not start")
    agents_of(desk, "sage")
    await desk.service.look()
    assert desk.trials == 1

    desk.write(90)
    await desk.service.look()
    desk.now += 3600
    await desk.service.look()

    assert (desk.trials, desk.restarts) == (1, [])
    assert (desk.applied, desk.refused[-1]) == ([], None)


async def test_settings_that_say_again_what_holds_while_others_are_tried_ask_for_no_restart(
    desk: Desk,
) -> None:
    desk.meanwhile = lambda: desk.write(90)
    agents_of(desk, "sage")

    await desk.service.look()

    assert (desk.trials, desk.restarts) == (1, [])


async def test_what_applies_live_is_applied_without_what_was_refused(desk: Desk) -> None:
    seen: list[Config] = []
    desk.service._on_live = seen.append
    desk.trouble = SettingsError("the next gateway could not start")
    desk.write(20, owner='"somebody else"', rate_limit_per_s=7)

    await desk.service.look()

    (config,) = seen
    assert (config.gateway.restart.drain_timeout_s, config.gateway.rate_limit_per_s) == (20, 7)
    assert config.gateway.owner == "system"
    assert (desk.trials, desk.restarts) == (1, [])


async def test_a_schedule_waits_for_the_agent_that_was_refused_with_it(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    desk.trouble = SettingsError("the next gateway could not start")
    agents_of(desk, "sage")
    schedule = '[schedules.day]\ncron = "0 0 * * *"\nagent = "sage"\nprompt = "x"\n'
    (desk.home / "holdfast.toml").write_text((desk.home / "holdfast.toml").read_text() + schedule)
    for _ in range(20):
        await desk.service.look()
        desk.now += 5
    assert desk.refused[-1] == f"the settings are not applied: {desk.trouble}"
    assert "settings applied" not in caplog.text

    desk.trouble = None
    desk.now += reload.LONGEST_PAUSE_S
    await desk.service.look()

    assert desk.restarts == [["agents.sage"]]


async def test_a_token_whose_file_appears_is_applied_though_no_person_touches_the_settings(
    desk: Desk,
) -> None:
    real = desk.service._on_live

    def refuse(_config: Config) -> None:
        raise SettingsError("tokens.board.token_file is 'board', which is not there")

    desk.service._on_live = refuse
    desk.write(20)
    for _ in range(4):
        await desk.service.look()
    assert (desk.applied, len(desk.refused)) == ([], 1)

    desk.service._on_live = real
    desk.now += reload.FIRST_PAUSE_S
    await desk.service.look()

    assert (desk.applied, desk.refused[-1]) == ([20], None)


async def test_a_drain_that_was_taken_back_is_not_asked_for_again_at_once(desk: Desk) -> None:
    desk.trouble = RestartBlocked("a checkpoint cannot be saved")
    agents_of(desk, "sage")
    for _ in range(200):  # 100 seconds
        await desk.service.look()
        desk.now += 0.5

    assert len(desk.restarts) == 2
    assert desk.refused[-1] == "the settings are not applied: a checkpoint cannot be saved"


async def test_an_address_that_counts_later_is_said_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.write(90, port=4654)
    await desk.service.look()
    desk.write(91, port=4654)
    await desk.service.look()

    assert caplog.text.count("gateway.port: stop `holdfast up` and start it again to apply it") == 1


async def test_the_service_looks_until_it_is_stopped(desk: Desk) -> None:
    running = asyncio.ensure_future(desk.service.run())
    desk.write(20)
    await until(lambda: desk.applied == [20])
    desk.write(300)
    await until(lambda: desk.applied == [20, 300])

    desk.service.stop()
    await soon(running)
