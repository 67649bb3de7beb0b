"""Registers the secrets of the settings and the environment, so that none is ever stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from holdfast.config.sections import Config
from holdfast.core.redaction import keep_secret

# Environment variables with secret values, by full name and by prefix.
_VARIABLES = ("HOLDFAST_KEY", "PGPASSWORD")
_PREFIX = "HOLDFAST_SECRET_"
# Parameters of a PostgreSQL URL that are no secrets, such as the folder of its socket.
_PLAIN_PARAMETERS = frozenset({"application_name", "dbname", "host", "hostaddr", "port", "user"})
_FEWEST_CHARS = 8
_LONG_CHARS = 16


def keep_secrets(config: Config, environ: Mapping[str, str]) -> None:
    """Register the secrets. Called at each read of the settings, to learn secrets added while a gateway runs.

    Tokens and webhook secrets are registered where they are read, in token.py and delivery/channels.py.
    """
    for name, value in environ.items():
        if name in _VARIABLES or name.startswith(_PREFIX):
            keep_secret(value)
    for secret in config.secrets.values():
        # Not redacted in names: other processes of the ledger do not know it, and must find the same names.
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
    """The password and the query of the ledger's URL. Its other parts, also where the query has them, are
    plain names, which people also use in goals and keys."""
    _, _, rest = url.partition("://")
    before, _, asked = rest.partition("?")
    login, at, _ = before.rpartition("@")
    password = login.partition(":")[2] if at else ""
    odd = [one for one in asked.split("&") if one.partition("=")[0] not in _PLAIN_PARAMETERS]
    return secrets_in(f"://{password}?{'&'.join(odd)}")


def secrets_in(url: str) -> list[str]:
    """The parts of a URL that may be secrets: those that do not look like plain names.

    A plain word is left out even as a password: it would be hidden wherever it is used as a word.
    """
    _, _, rest = url.partition("://")
    found = re.split(r"[/?&#=@:,]", rest)
    odd = [part for part in dict.fromkeys(found) if _is_odd(part)]
    return list(dict.fromkeys(form for part in odd for form in (part, unquote(part))))


def _is_odd(text: str) -> bool:
    if len(text) < _FEWEST_CHARS or text.isdigit():
        return False
    # A host name has dots and no capitals; a secret of this length has no dots, or other characters, too.
    is_host = re.fullmatch(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+", text) is not None
    return not is_host and (len(text) >= _LONG_CHARS or re.search(r"[^A-Za-z._-]", text) is not None)
