"""Sign-in of browsers: single-use codes, and the key that signs cookies; private files of the home.

A code is a file whose name is the digest of the code. To use it is to remove the file, so that of two
requests with the same code only one succeeds, also across processes and kills.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.config.token import read_private
from holdfast.config.token_file import OPERATOR
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import keep_secret

CODES_NAME = "sign-in"
KEY_NAME = "dashboard-key"
# The page that exchanges a code; browsers do not send the fragment, so no log has the code.
SIGN_IN_PATH = "/dashboard/sign-in"
CODE_LASTS = timedelta(minutes=10)
# A code from the future means that the clock was set back: refuse it, or it would last longer.
_MAX_SKEW = timedelta(minutes=1)
# Files older than this are removed when the next code is made.
SIGNED_IN_LASTS = timedelta(days=7)
_CODE_BYTES = 24
_MAX_CODE_CHARS = 200
_SIGNED_OUT = "out-"


class _Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For which token a code signs in, and since when it is valid."""

    token: str
    made_at: datetime


def make_code(home: Path, now: datetime, *, token: str = OPERATOR) -> str:
    """A new code that signs a browser in once, with the rights of this token. Raises SettingsError."""
    folder = _folder(home)
    _remove_old(folder, now)
    code = secrets.token_urlsafe(_CODE_BYTES)
    keep_secret(code)
    try:
        trust.create_private_file(
            folder / _name_of(code), msgspec.json.encode(_Code(token=token, made_at=now))
        )
    except OSError as error:
        raise _unwritable(folder, error) from error
    return code


def sign_in_url(base: str, code: str) -> str:
    return f"{base.rstrip('/')}{SIGN_IN_PATH}#{code}"


def opening_file(home: Path, url: str, now: datetime) -> Path:
    """A private page that leads to the link: a browser is given its path, which is no secret. Raises
    SettingsError."""
    folder = _folder(home)
    _remove_old(folder, now)
    path = folder / f"open-{secrets.token_hex(8)}.html"
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}">\n'
    try:
        trust.create_private_file(path, page.encode())
    except OSError as error:
        raise _unwritable(folder, error) from error
    return path


def redeem_code(home: Path, code: str, now: datetime) -> str | None:
    """Use up a code; returns the name of its token, or None for a code that is unknown, used or too old."""
    if not code or len(code) > _MAX_CODE_CHARS:
        return None
    path = home / CODES_NAME / _name_of(code)
    try:
        found = msgspec.json.decode(read_private(path), type=_Code)
        path.unlink()
    except (OSError, SettingsError, msgspec.DecodeError):
        return None
    is_valid = found.made_at - _MAX_SKEW <= now < found.made_at + CODE_LASTS
    return found.token if is_valid else None


def read_key(home: Path) -> bytes:
    """The key that signs the cookies of this home; created at its first use. Raises SettingsError."""
    path = home / KEY_NAME
    if not path.exists() and not path.is_symlink():
        try:
            trust.create_private_file(path, f"{secrets.token_hex(32)}\n".encode())
        except OSError as error:
            raise _unwritable(path, error) from error
    text = read_private(path)
    if len(text) < 64:
        raise SettingsError(f"{path} is not a key: remove it, and all browsers sign in again")
    keep_secret(text)
    return text.encode()


def note_sign_out(home: Path, session: str) -> None:
    """Record that the cookies of this session are not valid any more. Raises SettingsError."""
    folder = _folder(home)
    try:
        trust.create_private_file(folder / f"{_SIGNED_OUT}{_name_of(session)}", b"{}\n")
    except OSError as error:
        raise _unwritable(folder, error) from error


def has_signed_out(home: Path, session: str) -> bool:
    return (home / CODES_NAME / f"{_SIGNED_OUT}{_name_of(session)}").exists()


def _name_of(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _folder(home: Path) -> Path:
    folder = home / CODES_NAME
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise SettingsError(f"{folder} must be a directory that only the gateway's user can open: remove it")
    return folder


def _remove_old(folder: Path, now: datetime) -> None:
    """Remove codes that were not used in time, and sign-outs whose cookies have expired."""
    for path in folder.iterdir():
        lasts = SIGNED_IN_LASTS if path.name.startswith(_SIGNED_OUT) else CODE_LASTS
        try:
            if path.stat().st_mtime < (now - lasts).timestamp():
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue


def _unwritable(path: Path, error: OSError) -> SettingsError:
    return SettingsError(f"{path} cannot be written, {str(error.strerror).lower()}: check the home")
