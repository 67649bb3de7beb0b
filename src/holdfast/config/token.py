"""Reads the gateway's tokens and the secrets of channels, from files that only their owner can read."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from holdfast import trust
from holdfast.config.secret_registration import secrets_in
from holdfast.config.sections import ChannelSettings, TokenSettings
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import keep_secret

TOKEN_VARIABLE = "HOLDFAST_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_NAME = "token"  # noqa: S105 - the name of a file
TOKEN_BYTES = 32  # 256 bits: impossible to guess
_PREFIX = "hf_gw_"
_MAX_BYTES = 4096
_HOW_TO_MAKE_ONE = "create one with `python -c 'import secrets; print(secrets.token_hex(32))'`"
# A token of your own: valid in an HTTP header, and too long to guess.
_TOKEN = re.compile(r"[!-~]{32,512}")
_FEWEST_SECRET_CHARS = 16


def read_token(home: Path, environ: Mapping[str, str], *, may_make: bool = True) -> str:
    """HOLDFAST_TOKEN, or the file `token` in the home, which is created if it is missing.

    Raises SettingsError if others can read the file, or if the token is too short.
    """
    given = environ.get(TOKEN_VARIABLE)
    if given:
        return _check_token(given, TOKEN_VARIABLE, _HOW_TO_MAKE_ONE)
    path = home / TOKEN_NAME
    if may_make and not path.is_symlink() and not path.exists():
        _make(path)
    try:
        return _check_token(read_private(path), str(path), "remove it, and the next start creates a new one")
    except FileNotFoundError as error:
        raise SettingsError(
            f"{path} does not exist: start the gateway, which creates it (`holdfast up`)"
        ) from error


def read_named_token(name: str, settings: TokenSettings, home: Path, environ: Mapping[str, str]) -> str:
    """A token of the settings, from its environment variable or its file. Raises SettingsError."""
    if settings.token_env is not None:
        where = f"tokens.{name}.token_env, {settings.token_env},"
        return _check_token(environ.get(settings.token_env, ""), where, _HOW_TO_MAKE_ONE)
    path = token_path(settings, home)
    assert path is not None
    try:
        return _check_token(read_private(path), f"tokens.{name}.token_file, {path},", _HOW_TO_MAKE_ONE)
    except FileNotFoundError as error:
        raise SettingsError(
            f"tokens.{name}.token_file is {str(path)!r}, which does not exist: {_HOW_TO_MAKE_ONE}"
        ) from error


def token_path(settings: TokenSettings, home: Path) -> Path | None:
    """The file of a token of the settings; None if it is in an environment variable."""
    if settings.token_file is None:
        return None
    return home / Path(settings.token_file).expanduser()  # not resolved, so that links are refused


def read_secret(name: str, channel: ChannelSettings, home: Path, environ: Mapping[str, str]) -> str:
    """The signing secret of a webhook channel, from its environment variable or its file."""
    if channel.secret_env is not None:
        key, where = "secret_env", channel.secret_env
        found = environ.get(channel.secret_env, "")
        fix = "set that variable before you start the gateway"
    elif channel.secret_file is not None:
        key, where = "secret_file", channel.secret_file
        try:
            path = home / Path(where).expanduser()  # not resolved, so that links are refused
        except RuntimeError as error:
            raise SettingsError(f"channels.{name}.secret_file is {where!r}: no such user") from error
        try:
            found = read_private(path)
        except FileNotFoundError:
            found = ""
        fix = f"write the secret to {path}, readable only by its owner"
    else:
        raise SettingsError(f"channels.{name} has neither secret_env nor secret_file: set one of them")
    if len(found) < _FEWEST_SECRET_CHARS:
        why = "is empty" if not found else f"has fewer than {_FEWEST_SECRET_CHARS} characters"
        raise SettingsError(f"channels.{name}.{key} is {where!r}, which {why}: {fix}")
    keep_secret(found)
    return found


def read_urls(name: str, channel: ChannelSettings, home: Path) -> list[str]:
    """The URLs of a channel of kind apprise, from its settings or its file. Raises SettingsError."""
    if channel.urls_file is None:
        return channel.urls
    key = f"channels.{name}.urls_file"
    try:
        path = home / Path(channel.urls_file).expanduser()  # not resolved, so that links are refused
        lines = read_private(path).splitlines()
    except RuntimeError as error:
        raise SettingsError(f"{key} is {channel.urls_file!r}: no such user") from error
    except FileNotFoundError:
        lines = []
    urls = [line.strip() for line in lines if line.strip()]
    if not urls:
        raise SettingsError(f"{key} is {str(path)!r}, which holds no URL: write one per line there")
    for url in urls:
        for part in secrets_in(url):
            keep_secret(part)
    return urls


def new_token() -> str:
    """A new token of 256 random bits; this process redacts it from now on."""
    text = f"{_PREFIX}{secrets.token_urlsafe(TOKEN_BYTES)}"
    keep_secret(text)
    return text


def read_private(path: Path, *, max_bytes: int = _MAX_BYTES) -> str:
    """The text of a file that is ours and that no other user can read. Raises FileNotFoundError."""
    try:
        # Checked after opening: the file could be replaced between a check and the opening.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a link" if path.is_symlink() else str(error.strerror).lower()
        raise SettingsError(
            f"{path} cannot be used, {why}: replace it by a regular file of the gateway's user"
        ) from error
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise SettingsError(f"{path} is not a regular file: remove it")
        problem = trust.why_not_trusted(path, opened=found, is_private=True)
        if problem is not None:
            raise SettingsError(problem)
        with open(file, "rb", closefd=False) as opened:
            content = opened.read(max_bytes + 1)
    finally:
        os.close(file)
    if len(content) > max_bytes:
        raise SettingsError(f"{path} is larger than {max_bytes:,} bytes: write one secret and nothing else")
    return content.decode("utf-8", "replace").strip()


def _check_token(text: str, where: str, fix: str) -> str:
    if not _TOKEN.fullmatch(text):
        # Never show the token, not even an invalid one.
        raise SettingsError(f"{where} is not a token of 32 to 512 letters, digits and signs: {fix}")
    keep_secret(text)
    return text


def _make(path: Path) -> None:
    """Create the file, unless another process created it first; then both use that one."""
    try:
        trust.create_private_file(path, f"{new_token()}\n".encode())
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written, {str(error.strerror).lower()}: check the home"
        ) from error
