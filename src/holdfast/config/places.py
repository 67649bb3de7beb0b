"""Where the home and the ledger are: all settings that a read-only command needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast import trust
from holdfast.config import documents
from holdfast.core.errors import HomeUnusable, SettingsError
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES, MAX_KEEP_RESULTS_BYTES
from holdfast.core.patterns import compiled_late
from holdfast.core.redaction import redact_text
from holdfast.core.seal_mode import SealMode

HOME_VARIABLE = "HOLDFAST_HOME"
STORE_VARIABLE = "HOLDFAST_STORE"
SEAL_VARIABLE = "HOLDFAST_SEAL"
LEDGER_NAME = "ledger.db"

# Up to the last @: a password that is not percent-encoded may contain any character.
# Also with one slash too few.
_PASSWORD = compiled_late(r"(:/{0,2}[^:@/]*:).*(?=@)|(password=)[^&\s]*", re.IGNORECASE)
_POSTGRES = ("postgresql://", "postgres://")
_FORMS = "sqlite:///relative/path, sqlite:////absolute/path, postgresql://user@host/database or memory:"


class SqlitePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger in one file. Links are resolved, so that all processes agree on the files next to it."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def shown(self) -> str:
        return self.url


class PostgresPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger in a PostgreSQL database. The URL may contain a password: print `shown` instead."""

    url: str

    @property
    def shown(self) -> str:
        return without_password(self.url)


class MemoryPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger in memory, for tests; lost when its process ends."""

    url: str = "memory:"

    @property
    def shown(self) -> str:
        return self.url


StorePlace: TypeAlias = SqlitePlace | PostgresPlace | MemoryPlace


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The home, and the place of the ledger."""

    home: Path
    store: StorePlace
    # Which values are sealed, and the command that prints their key.
    seal: SealMode = SealMode.SECRETS
    key_command: tuple[str, ...] = ()
    # Up to this size, in bytes, results of steps stay when their turn has committed.
    keep_results: int = KEEP_RESULTS_BYTES
    # Why the home's settings file could not be read, if the ledger was named elsewhere. A command that only
    # reads does not need the file; one that writes must know what to seal.
    unread: str | None = None


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """The section `store` of the home's settings file."""

    url: str | None = None
    seal: SealMode = SealMode.SECRETS
    key_command: tuple[str, ...] = ()
    keep_results: int = KEEP_RESULTS_BYTES


def read_settings(
    environ: Mapping[str, str], *, home: str | None = None, store: str | None = None
) -> Settings:
    """From the command line, else the environment, else the home's settings file, else the default.

    What is sealed always comes from the home's settings file, even if the ledger is named elsewhere.
    """
    at = read_home(environ, home=home)
    key, url = STORE_VARIABLE, environ.get(STORE_VARIABLE) or None
    if store is not None:
        key, url = "--store", store
    document, section, unread = None, _Section(), None
    try:
        document = documents.find(at, documents.MAIN)
        if document is not None:
            section = _read_section(documents.read(document).get("store"), document)
    except SettingsError as error:
        if url is None:
            raise
        unread = str(error)
    place: StorePlace
    if url is not None:
        place = read_store_url(url, key=key)
    elif section.url is not None:
        # Relative to the home, so that all processes mean the same file, whatever their working directory.
        place = read_store_url(section.url, key=f"store.url in {document}", base=at)
    else:
        place = SqlitePlace(path=_path("--home", str(at / LEDGER_NAME)))
    seal = section.seal
    if environ.get(SEAL_VARIABLE):
        seal = read_seal(environ[SEAL_VARIABLE], SEAL_VARIABLE)
    return Settings(
        home=at,
        store=place,
        seal=seal,
        key_command=section.key_command,
        keep_results=section.keep_results,
        unread=unread,
    )


def read_seal(value: object, key: str) -> SealMode:
    try:
        return SealMode(str(value))
    except ValueError as error:
        raise SettingsError(f"{key} is {str(value)[:40]!r}: write secrets, all or never") from error


def _read_section(found: object, document: Path) -> _Section:
    """The same as `files` reads, without its slow import."""
    if found is None:
        return _Section()
    if isinstance(found, str):
        return _Section(url=found)
    if not isinstance(found, dict):
        raise SettingsError(f"store in {document} is neither a string nor a table: use {_FORMS}")
    url, seal = found.get("url"), found.get("seal", SealMode.SECRETS)
    if url is not None and not isinstance(url, str):
        raise SettingsError(f"store.url in {document} is not a string: use {_FORMS}")
    command = found.get("key_command", found.get("keyCommand", []))
    if not isinstance(command, list) or not all(isinstance(one, str) and "\0" not in one for one in command):
        raise SettingsError(
            f"store.key_command in {document} is not a list of strings: start with the program"
        )
    keep = found.get("keep_results", found.get("keepResults", KEEP_RESULTS_BYTES))
    if type(keep) is not int or not 0 <= keep <= MAX_KEEP_RESULTS_BYTES:
        raise SettingsError(
            f"store.keep_results in {document} is {str(keep)[:40]!r}: write a number of bytes from 0 to "
            f"{MAX_KEEP_RESULTS_BYTES}"
        )
    return _Section(
        url=url,
        seal=read_seal(seal, f"store.seal in {document}"),
        key_command=tuple(command),
        keep_results=keep,
    )


def read_home(environ: Mapping[str, str], *, home: str | None = None) -> Path:
    """The home from the command line, else from the environment, else the default."""
    return _directory("--home", home) if home is not None else default_home(environ)


def default_home(environ: Mapping[str, str]) -> Path:
    """HOLDFAST_HOME, or the platform's directory for state (on Linux ~/.local/state/holdfast)."""
    if environ.get(HOME_VARIABLE):
        return _directory(HOME_VARIABLE, environ[HOME_VARIABLE])
    if sys.platform == "linux":
        # The same as platformdirs, whose import would take longer than the rest of a listing.
        base = environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state"
        return _directory("XDG_STATE_HOME", base) / "holdfast"
    import platformdirs

    return platformdirs.user_state_path("holdfast", appauthor=False)


def read_store_url(url: str, *, key: str = "store", base: Path | None = None) -> StorePlace:
    """Parse the URL of a ledger.

    As elsewhere in Python, the path follows `sqlite:///`: `sqlite:///work.db` is relative to the working
    directory, or to `base`, and `sqlite:////var/lib/work.db` is absolute. The path is not percent-decoded.
    `sqlite:work.db` and `sqlite:/var/lib/work.db` mean the same.
    """
    if url == "memory:":
        return MemoryPlace()
    if url.startswith(_POSTGRES):
        return PostgresPlace(url=url)
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise _unusable(key, url, f"write sqlite:{url} for a file")
    if scheme != "sqlite":
        raise _unusable(key, url, f"use {_FORMS}")
    if rest.startswith("///"):
        rest = rest.removeprefix("///")
    elif rest.startswith("//"):
        raise _unusable(key, url, f"write sqlite:///{rest.strip('/')} (or four slashes for an absolute path)")
    if not rest.strip("/"):
        raise _unusable(key, url, "name a file: sqlite:///relative/path or sqlite:////absolute/path")
    path = _path(key, rest, base)
    if path.is_dir():
        raise _unusable(
            key, url, f"it is a directory; name a file in it, such as sqlite:///{path / LEDGER_NAME}"
        )
    return SqlitePlace(path=path)


def in_home(home: Path, path: str, *, key: str) -> Path:
    """The path in a setting: relative to the home, and ~ is the user's own directory."""
    return _path(key, path, home)


def without_password(url: str) -> str:
    """A URL without its password, to show."""
    return redact_text(_PASSWORD().sub(lambda found: f"{found[1] or found[2]}…", url))


def _directory(key: str, value: str) -> Path:
    try:
        if not value.strip():
            raise _unusable(key, value, "name a directory")
        path = _path(key, value)
        if path.exists() and not path.is_dir():
            raise _unusable(key, value, "it is a file; name a directory")
        # Check the links on the way now: the resolved path no longer contains them.
        problem = trust.why_foreign_link(Path(value).expanduser())
        if problem is not None:
            raise _unusable(key, value, problem)
    except SettingsError as error:
        raise HomeUnusable(str(error)) from error
    return path


def _path(key: str, value: str, base: Path | None = None) -> Path:
    try:
        path = Path(value).expanduser()
        return (path if base is None else base / path).resolve()
    except (RuntimeError, ValueError, OSError) as error:  # no such user, a NUL, a loop of links
        raise _unusable(key, value, f"it is not a valid path ({error})") from error


def _unusable(key: str, value: str, fix: str) -> SettingsError:
    return SettingsError(f"{key} is {without_password(value)!r}: {fix}")
