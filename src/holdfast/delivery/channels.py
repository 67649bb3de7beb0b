"""Opens the channels of the settings, and reads their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.channels import console
from holdfast.channels.contract import ChannelSender
from holdfast.channels.notify import Notify
from holdfast.channels.webhook import Webhook
from holdfast.config.sections import ALERT_CHANNEL, ChannelSettings, Config
from holdfast.config.token import read_private, read_urls
from holdfast.core.clock import Clock
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import keep_secret

MIN_SECRET_CHARS = 16
_RESERVED = frozenset({console.NAME, "cron", "system"})


def mouths_of(
    config: Config, *, home: Path, environ: Mapping[str, str], clock: Clock
) -> dict[str, ChannelSender]:
    """The channels that send answers, by name; the console is always there. Raises SettingsError.

    A webhook without a URL only receives: its answers are read in the transcript, as on the console.
    """
    mouths: dict[str, ChannelSender] = {console.NAME: console.Console()}
    for name, settings in config.channels.items():
        if name in _RESERVED:
            raise SettingsError(f"channels.{name}: the name is taken by the gateway itself; choose another")
        if settings.kind == "apprise":
            notify = Notify(name, read_urls(name, settings, home), timeout_s=settings.timeout_s)
            notify.check()
            mouths[name] = notify
            continue
        secrets = secrets_of(name, settings, home=home, environ=environ)
        if settings.url is None:
            mouths[name] = console.Console()
        else:
            mouths[name] = Webhook(name, settings.url, secrets[0], clock, timeout_s=settings.timeout_s)
    return mouths | alert_channel(config)


def alert_channel(config: Config) -> dict[str, ChannelSender]:
    """The channel of `gateway.alert_urls`, if there are any."""
    urls = config.gateway.alert_urls
    return {ALERT_CHANNEL: Notify(ALERT_CHANNEL, urls, may_be_webhooks=True)} if urls else {}


def secrets_of(
    name: str, settings: ChannelSettings, *, home: Path, environ: Mapping[str, str]
) -> tuple[bytes, ...]:
    """The secrets of a webhook, one per line: the first one signs, all of them are accepted."""
    if settings.secret_env is not None:
        text, where = environ.get(settings.secret_env, ""), f"the variable {settings.secret_env}"
    else:
        given = settings.secret_file or ""
        text, where = _read_file(name, home, given), given
    secrets = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not secrets:
        raise SettingsError(f"channels.{name}: {where} holds no secret; put one there")
    for secret in secrets:
        if len(secret) < MIN_SECRET_CHARS:
            raise SettingsError(
                f"channels.{name}: the secret in {where} has fewer than {MIN_SECRET_CHARS} characters; "
                "make one with `openssl rand -hex 32`"
            )
        keep_secret(secret)
    return tuple(secret.encode() for secret in secrets)


def _read_file(name: str, home: Path, given: str) -> str:
    key = f"channels.{name}.secret_file"
    try:
        path = home / Path(given).expanduser()  # not resolved: a link is not followed
        text = read_private(path)
    except RuntimeError as error:
        raise SettingsError(f"{key} is {given!r}: no such user") from error
    except FileNotFoundError as error:
        raise SettingsError(f"{key} is {str(path)!r}, which is not there; put the secret there") from error
    except SettingsError as error:
        raise SettingsError(f"{key}: {error}") from error
    if "\ufffd" in text:
        raise SettingsError(f"{key} is {str(path)!r}, which is not text; put the secret there")
    return text
