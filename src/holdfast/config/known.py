"""Keeps in mind the secrets that settings and environment hold: none of them is ever stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from holdfast.config.gateway import Config
from holdfast.core.redaction import keep_secret

# Variables whose values are secrets, by their whole names and by how they begin.
_VARIABLES = ("HOLDFAST_KEY", "PGPASSWORD")
_PREFIX = "HOLDFAST_SECRET_"
_FEWEST_CHARS = 8
_LONG_CHARS = 16


def keep_secrets(config: Config, environ: Mapping[str, str]) -> None:
    """At each reading of the settings, so that what is added while a gateway lives counts, too.

    Tokens and the secrets of webhooks are kept where they are read, in token.py and delivery/channels.py.
    """
    for name, value in environ.items():
        if name in _VARIABLES or name.startswith(_PREFIX):
            keep_secret(value)
    for secret in config.secrets.values():
        # Not the process's own: a script that shares the ledger does not know it in names, either.
        keep_secret(environ.get(secret.env, ""), is_own=False)
    for url in _urls(config):
        for part in secrets_in(url):
            keep_secret(part)
    for part in secrets_in_store(config.store.url or ""):
        keep_secret(part)


def _urls(config: Config) -> Iterator[str]:
    yield from config.gateway.alert_urls
    for channel in config.channels.values():
        yield from channel.urls
        if channel.url is not None:
            yield channel.url


def secrets_in_store(url: str) -> list[str]:
    """Of the ledger's address its password and what follows the `?`. Its other parts are names of places,
    which people use in goals and keys, too."""
    _, _, rest = url.partition("://")
    before, _, asked = rest.partition("?")
    login, at, _ = before.rpartition("@")
    password = login.partition(":")[2] if at else ""
    return secrets_in(f"://{password}?{asked}")


def secrets_in(url: str) -> list[str]:
    """What of an address may be a secret: its password, and what is too odd to be a name of something.

    A word is left out even where a password stands: it would be hidden wherever it is only a word.
    """
    _, _, rest = url.partition("://")
    found = re.split(r"[/?&#=@:,]", rest)
    odd = [part for part in dict.fromkeys(found) if _is_odd(part)]
    return list(dict.fromkeys(form for part in odd for form in (part, unquote(part))))


def _is_odd(text: str) -> bool:
    if len(text) < _FEWEST_CHARS or text.isdigit():
        return False
    # A host has dots and no capitals; a secret of this length has no dots, or other signs as well.
    is_host = re.fullmatch(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+", text) is not None
    return not is_host and (len(text) >= _LONG_CHARS or re.search(r"[^A-Za-z._-]", text) is not None)
