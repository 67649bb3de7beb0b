"""The tokens that `holdfast tokens` creates: a file of digests in the home, written atomically.

They are in the home and not in the ledger, because a restored backup of the ledger must not make a revoked
token valid again.
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
from holdfast.config.sections import InvalidField, Scope, TokenSettings
from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE, new_token, read_private
from holdfast.core.errors import BadInput, NotFound, Refused, SettingsError

ISSUED_NAME = "tokens.json"
USES_NAME = "token-uses.json"
# The name of the home's own token, in HOLDFAST_TOKEN or in the file `token`.
OPERATOR = "operator"
MAX_TOKENS = 1000
_MAX_BYTES = 4 * 1024**2
_VERSION = 1
_LOCK_NAME = "tokens.lock"
_PATIENCE_S = 5.0
_ASK_AGAIN_S = 0.02


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stored token: its digest, never the token itself."""

    name: str
    digest: str
    scopes: list[Scope]
    owner: str | None = None
    tasks: list[str] | None = None
    methods: list[str] | None = None
    created_at: datetime
    # When it was last rotated.
    rotated_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def since(self) -> datetime:
        """Since when the current token is valid."""
        return self.rotated_at or self.created_at


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    tokens: list[IssuedToken]


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A new token with its text, which is stored nowhere and shown once."""

    token: IssuedToken
    text: str


def digest_of(token: str) -> str:
    """The stored digest of a token. A token has 256 random bits, so a fast hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_issued(home: Path) -> list[IssuedToken]:
    """The stored tokens, by name. Raises SettingsError if the file cannot be trusted."""
    path = home / ISSUED_NAME
    try:
        text = read_private(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return []
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SettingsError(
            f"{path} is damaged ({error}): move it away, and create its tokens again with "
            "`holdfast tokens create`"
        ) from error
    if document.version != _VERSION:
        raise SettingsError(
            f"{path} has version {document.version}: a newer Holdfast wrote it; use that version"
        )
    return sorted(document.tokens, key=lambda one: one.name)


def create(home: Path, name: str, terms: TokenSettings, *, taken: set[str], now: datetime) -> Issued:
    """Create a token; stored when this returns. Raises Refused if the name is taken."""
    if name == OPERATOR or name in taken:
        where = "in the settings" if name in taken else "as the token of this home"
        raise Refused(f"a token {name!r} already exists, {where}: choose another name")
    _check_end(terms.expires_at, now)
    with _alone(home):
        return _create(home, name, terms, now)


def _create(home: Path, name: str, terms: TokenSettings, now: datetime) -> Issued:
    tokens = read_issued(home)
    if any(one.name == name for one in tokens):
        raise Refused(
            f"a token {name!r} already exists: choose another name, or `holdfast tokens rotate {name}`"
        )
    if len(tokens) >= MAX_TOKENS:
        raise Refused(
            f"there are {MAX_TOKENS:,} tokens, the limit: revoke some with `holdfast tokens revoke NAME`"
        )
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
    """Revoke a token; it is refused from now on. Raises NotFound."""
    with _alone(home):
        tokens = read_issued(home)
        token = _found(tokens, name)
        _write(home, [one for one in tokens if one is not token])
    return token


def rotate(home: Path, name: str, *, expires_at: datetime | None, now: datetime) -> Issued:
    """Replace a token; the old one is refused from now on. Raises NotFound."""
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
    """Replace the token in the file `token` of the home; the old one is refused from now on."""
    if os.environ.get(TOKEN_VARIABLE):
        raise Refused(
            f"the token of this home comes from {TOKEN_VARIABLE}: change that variable, and restart"
        )
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
    """The scopes and limits of a token, checked like those in the settings. Raises BadInput."""
    try:
        return TokenSettings(
            token_env="ISSUED",  # noqa: S106 - unused; TokenSettings requires a source
            scopes=scopes,
            owner=owner,
            tasks=tasks,
            methods=methods,
            expires_at=expires_at,
        )
    except InvalidField as wrong:
        raise BadInput(wrong.field, wrong.fix) from wrong


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Lock the file against other threads and processes. Raises Refused after a timeout."""
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
                    raise Refused("another process is changing the tokens of this home: try again") from None
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
        raise BadInput(
            "expires_at", f"{expires_at:%Y-%m-%d %H:%M:%S %Z} is in the past; give a time in the future"
        )


def _write(home: Path, tokens: list[IssuedToken]) -> None:
    document = _Document(version=_VERSION, tokens=sorted(tokens, key=lambda one: one.name))
    write_private(home / ISSUED_NAME, msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def write_private(path: Path, content: bytes, *, is_durable: bool = True) -> None:
    """Replace a file atomically, readable only by its owner. Raises SettingsError."""
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
            os.replace(made, path)  # noqa: PTH105 - tests count calls of os
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
    """The last use of each token by name; empty if the file cannot be read."""
    try:
        text = read_private(home / USES_NAME, max_bytes=_MAX_BYTES)
        return msgspec.json.decode(text, type=dict[str, datetime])
    except (FileNotFoundError, SettingsError, msgspec.DecodeError, UnicodeError):
        return {}


def write_uses(home: Path, uses: dict[str, datetime]) -> None:
    write_private(home / USES_NAME, msgspec.json.encode(uses) + b"\n", is_durable=False)
