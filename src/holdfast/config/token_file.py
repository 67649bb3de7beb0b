"""The tokens that `holdfast tokens` makes: a file of digests in the home, written whole or not at all.

They lie in the home and not in the ledger: a ledger that is restored from a backup must not make a token
valid again that the operator has revoked since.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast import trust
from holdfast.config.gateway import Scope, TokenSettings, Unusable
from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE, new_token, read_private
from holdfast.core.errors import BadInput, NotFound, Refused, SettingsError

ISSUED_NAME = "tokens.json"
USES_NAME = "token-uses.json"
# The name of the token that every home has, in HOLDFAST_TOKEN or in the file `token`.
OPERATOR = "operator"
MAX_TOKENS = 1000
_MAX_BYTES = 4 * 1024**2
_VERSION = 1
_LOCK_NAME = "tokens.lock"
_PATIENCE_S = 5.0
_ASK_AGAIN_S = 0.02


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token as it is kept: its digest, never the token itself."""

    name: str
    digest: str
    scopes: list[Scope]
    owner: str | None = None
    tasks: list[str] | None = None
    methods: list[str] | None = None
    created_at: datetime
    # When its text was last made anew.
    rotated_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def since(self) -> datetime:
        """Since when the text that it has now is valid."""
        return self.rotated_at or self.created_at


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    tokens: list[IssuedToken]


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made. Its text is known here and nowhere else; it is shown once."""

    token: IssuedToken
    text: str


def digest_of(token: str) -> str:
    """By which a token is known. It has 256 random bits, so that nothing is gained by trying."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_issued(home: Path) -> list[IssuedToken]:
    """Those that hold, by their names. Raises SettingsError for a file that cannot be trusted."""
    path = home / ISSUED_NAME
    try:
        text = read_private(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return []
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SettingsError(
            f"{path} cannot be read ({error}): move it away, and make its tokens anew with "
            "`holdfast tokens create`"
        ) from error
    if document.version != _VERSION:
        raise SettingsError(f"{path} is of version {document.version}: a newer Holdfast wrote it; use that")
    return sorted(document.tokens, key=lambda one: one.name)


def create(home: Path, name: str, terms: TokenSettings, *, taken: set[str], now: datetime) -> Issued:
    """One more token, durable when this returns. Raises Refused for a name that is taken."""
    if name == OPERATOR or name in taken:
        where = "the settings have it" if name in taken else "it is the token of this home"
        raise Refused(f"a token is called {name!r} already, {where}: choose another name")
    _check_end(terms.expires_at, now)
    with _alone(home):
        return _create(home, name, terms, now)


def _create(home: Path, name: str, terms: TokenSettings, now: datetime) -> Issued:
    tokens = read_issued(home)
    if any(one.name == name for one in tokens):
        raise Refused(
            f"a token is called {name!r} already: choose another name, or `holdfast tokens rotate {name}`"
        )
    if len(tokens) >= MAX_TOKENS:
        raise Refused(f"there are {MAX_TOKENS:,} tokens: revoke some with `holdfast tokens revoke NAME`")
    text = new_token()
    token = IssuedToken(
        name=name,
        digest=digest_of(text),
        scopes=list(terms.scopes),
        owner=terms.owner,
        tasks=terms.tasks,
        methods=terms.methods,
        created_at=now,
        expires_at=terms.expires_at,
    )
    _write(home, [*tokens, token])
    return Issued(token=token, text=text)


def revoke(home: Path, name: str) -> IssuedToken:
    """Its bearer is refused from now on. Raises NotFound."""
    with _alone(home):
        tokens = read_issued(home)
        token = _found(tokens, name)
        _write(home, [one for one in tokens if one is not token])
    return token


def rotate(home: Path, name: str, *, expires_at: datetime | None, now: datetime) -> Issued:
    """Another text for the same token; the one before is refused from now on. Raises NotFound."""
    with _alone(home):
        tokens = read_issued(home)
        before = _found(tokens, name)
        ends = before.expires_at if expires_at is None else expires_at
        _check_end(ends, now)
        text = new_token()
        token = msgspec.structs.replace(before, digest=digest_of(text), rotated_at=now, expires_at=ends)
        _write(home, [token if one is before else one for one in tokens])
    return Issued(token=token, text=text)


def rotate_operator(home: Path) -> str:
    """Another text in the file `token` of the home; the one before is refused from now on."""
    if os.environ.get(TOKEN_VARIABLE):
        raise Refused(f"the token of this home is in {TOKEN_VARIABLE}: set another one there, and restart")
    text = new_token()
    write_private(home / TOKEN_NAME, f"{text}\n".encode())
    return text


def terms_of(
    *,
    scopes: list[Scope],
    owner: str | None,
    tasks: list[str] | None,
    methods: list[str] | None,
    expires_at: datetime | None,
) -> TokenSettings:
    """What a token may, checked as for one of the settings. Raises BadInput."""
    try:
        return TokenSettings(
            token_env="ISSUED",  # noqa: S106 - it stands nowhere, and the settings want a place
            scopes=scopes,
            owner=owner,
            tasks=tasks,
            methods=methods,
            expires_at=expires_at,
        )
    except Unusable as wrong:
        raise BadInput(wrong.field, wrong.fix) from wrong


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """No other thread and no other process changes the file meanwhile. Raises Refused after a while."""
    try:
        file = os.open(home / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = f"{home / _LOCK_NAME} cannot be opened, {str(error.strerror).lower()}: check the home"
        raise SettingsError(why) from error
    try:
        give_up_at = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise Refused("another process changes the tokens of this home: try again") from None
                time.sleep(_ASK_AGAIN_S)
        yield
    finally:
        os.close(file)


def _found(tokens: list[IssuedToken], name: str) -> IssuedToken:
    for one in tokens:
        if one.name == name:
            return one
    raise NotFound("token", name)


def _check_end(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise BadInput("expires_at", f"{expires_at:%Y-%m-%d %H:%M:%S %Z} is over; name a moment to come")


def _write(home: Path, tokens: list[IssuedToken]) -> None:
    document = _Document(version=_VERSION, tokens=sorted(tokens, key=lambda one: one.name))
    write_private(home / ISSUED_NAME, msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def write_private(path: Path, content: bytes, *, is_durable: bool = True) -> None:
    """In place of what is there, whole or not at all, for its owner alone. Raises SettingsError."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.fchmod(file, 0o600)
                with open(file, "wb", closefd=False) as opened:
                    opened.write(content)
                if is_durable:
                    os.fsync(file)
            finally:
                os.close(file)
            os.replace(made, path)  # noqa: PTH105 - the tests count the calls of os
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(made)  # noqa: PTH108 - as above
            raise
        if is_durable:
            trust.sync_directory(path.parent)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written, {str(error.strerror).lower()}: check the home"
        ) from error


# --- last use


def read_uses(home: Path) -> dict[str, datetime]:
    """When each token was last used, by its name; what cannot be read is not known."""
    try:
        text = read_private(home / USES_NAME, max_bytes=_MAX_BYTES)
        return msgspec.json.decode(text, type=dict[str, datetime])
    except (FileNotFoundError, SettingsError, msgspec.DecodeError, UnicodeError):
        return {}


def write_uses(home: Path, uses: dict[str, datetime]) -> None:
    write_private(home / USES_NAME, msgspec.json.encode(uses) + b"\n", is_durable=False)
