"""The channels of the settings: opened with their secrets, or refused with the key and the fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.channels.console import Console
from holdfast.channels.notify import Notify
from holdfast.channels.webhook import Webhook
from holdfast.config.sections import AgentSettings, ChannelSettings, Config
from holdfast.config.token import read_urls
from holdfast.config.token_file import write_private
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import redact_text
from holdfast.delivery.channels import mouths_of, secrets_of
from holdfast.testing import FakeClock

LONG = "a secret of the sea, long enough"


def config(**channels: ChannelSettings) -> Config:
    return Config(agents={"scholar": AgentSettings(callable="m:f")}, channels=channels)


def test_the_console_is_always_there(tmp_path: Path) -> None:
    mouths = mouths_of(config(), home=tmp_path, environ={}, clock=FakeClock())

    assert isinstance(mouths["console"], Console)


def test_each_channel_is_opened_as_its_kind(tmp_path: Path) -> None:
    settings = config(
        hook=ChannelSettings(kind="webhook", secret_env="HOOK", url="https://x.example/"),
        ear=ChannelSettings(kind="webhook", secret_env="HOOK", agent="scholar"),
        alarm=ChannelSettings(kind="apprise", urls=["json://localhost"]),
    )

    mouths = mouths_of(settings, home=tmp_path, environ={"HOOK": LONG}, clock=FakeClock())

    assert isinstance(mouths["hook"], Webhook)
    assert isinstance(mouths["ear"], Console)
    assert isinstance(mouths["alarm"], Notify)


def test_the_urls_of_a_notice_may_be_in_a_private_file(tmp_path: Path) -> None:
    write_private(tmp_path / "alarm.urls", b"json://localhost/a\n\nmailto://ada:Xk93jdLq8sPz@example.com\n")
    settings = ChannelSettings(kind="apprise", urls_file="alarm.urls")

    assert read_urls("alarm", settings, tmp_path) == [
        "json://localhost/a",
        "mailto://ada:Xk93jdLq8sPz@example.com",
    ]
    mouths = mouths_of(config(alarm=settings), home=tmp_path, environ={}, clock=FakeClock())
    assert isinstance(mouths["alarm"], Notify)
    assert redact_text("the password is Xk93jdLq8sPz") != "the password is Xk93jdLq8sPz"


@pytest.mark.parametrize("content", [None, b"\n"])
def test_a_file_without_urls_stops_the_start_with_the_fix(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        write_private(tmp_path / "alarm.urls", content)
    settings = ChannelSettings(kind="apprise", urls_file="alarm.urls")

    with pytest.raises(SettingsError, match=r"channels\.alarm\.urls_file .*write one per line"):
        mouths_of(config(alarm=settings), home=tmp_path, environ={}, clock=FakeClock())


@pytest.mark.parametrize("name", ["console", "cron", "system"])
def test_a_name_of_the_gateways_own_is_refused(tmp_path: Path, name: str) -> None:
    settings = config(**{name: ChannelSettings(kind="apprise", urls=["json://localhost"])})

    with pytest.raises(SettingsError, match=f"channels.{name}"):
        mouths_of(settings, home=tmp_path, environ={}, clock=FakeClock())


def test_secrets_stand_in_a_private_file_one_to_a_line_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "hook.secret").write_text(f"{LONG}\n\n{LONG} before\n")
    (tmp_path / "hook.secret").chmod(0o600)
    settings = ChannelSettings(kind="webhook", secret_file="hook.secret", agent="scholar")

    secrets = secrets_of("hook", settings, home=tmp_path, environ={})

    assert secrets == (LONG.encode(), f"{LONG} before".encode())
    assert LONG not in redact_text(f"it is {LONG}")


@pytest.mark.parametrize(
    ("text", "mode", "match"),
    [
        (None, 0, "is not there"),
        ("", 0o600, "holds no secret"),
        ("short", 0o600, "fewer than 16"),
        (LONG, 0o644, "chmod 600"),
        ("\udcff", 0o600, "not text"),
    ],
)
def test_a_secret_that_cannot_be_used_stops_the_start_with_the_fix(
    tmp_path: Path, text: str | None, mode: int, match: str
) -> None:
    path = tmp_path / "hook.secret"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        path.chmod(mode)
    settings = ChannelSettings(kind="webhook", secret_file="hook.secret", agent="scholar")

    with pytest.raises(SettingsError, match=match) as error:
        secrets_of("hook", settings, home=tmp_path, environ={})

    assert LONG not in str(error.value)


def test_a_secret_behind_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(LONG)
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / "hook.secret").symlink_to(tmp_path / "elsewhere")
    settings = ChannelSettings(kind="webhook", secret_file="hook.secret", agent="scholar")

    with pytest.raises(SettingsError, match=r"channels\.hook\.secret_file: .* it is a link"):
        secrets_of("hook", settings, home=tmp_path, environ={})


def test_a_secret_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook.secret").write_text(LONG)
    (tmp_path / "hook.secret").chmod(0o600)
    if os.geteuid() == 0:
        os.chown(tmp_path / "hook.secret", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    settings = ChannelSettings(kind="webhook", secret_file="hook.secret", agent="scholar")

    with pytest.raises(SettingsError, match="belongs to another user"):
        secrets_of("hook", settings, home=tmp_path, environ={})


def test_a_secret_in_the_home_of_an_unknown_user_is_named(tmp_path: Path) -> None:
    settings = ChannelSettings(kind="webhook", secret_file="~nosuchuser/x", agent="scholar")

    with pytest.raises(SettingsError, match="no such user"):
        secrets_of("hook", settings, home=tmp_path, environ={})


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    settings = ChannelSettings(kind="webhook", secret_env="HOOK", agent="scholar")

    with pytest.raises(SettingsError, match="the variable HOOK holds no secret"):
        secrets_of("hook", settings, home=tmp_path, environ={})
