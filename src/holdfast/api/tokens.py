"""The valid tokens, known by their digests and reloaded when one of their files changes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast import trust
from holdfast.api.contract import ALL_SCOPES, Caller
from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE, read_named_token, read_token, token_path
from holdfast.config.token_file import ISSUED_NAME, OPERATOR, read_issued, read_uses, write_uses
from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import redact_name
from holdfast.engine.aio.service import Service

if TYPE_CHECKING:
    from holdfast.config.sections import Config, TokenSettings

log = logging.getLogger("holdfast")

# Two writes this close together may leave the same modification time.
_SETTLED_US = 2_000_000
# How often the files are checked without a request, and last uses are saved.
WATCH_EVERY_S = 2.0

_Look: TypeAlias = tuple[int, ...] | None


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and the expiry of a token."""

    caller: Caller
    expires_at: datetime | None = None


_Known: TypeAlias = list[tuple[bytes, Bearer]]


class _Source:
    """The tokens of one file or variable. If it is unusable, its tokens are refused; others still work."""

    def __init__(self, name: str, read: Callable[[], _Known], path: Path | None = None) -> None:
        self.name = name
        self._read = read
        self._path = path
        self._look: _Look = None
        self._has_read = False
        self.known: _Known = []
        self.problem: str | None = None
        # Whether the problem is more than a missing token.
        self.is_wrong = True

    def refresh(self, now_us: int) -> bool:
        """Read the file again if it has changed; returns whether its tokens changed."""
        if self._path is None and self._has_read:
            return False
        # Take the stamp before reading, so that a later write counts as a change.
        look = None if self._path is None else trust.version_of(self._path, follow_links=False)
        if self._has_read and look == self._look and not _may_be_racy(look, now_us):
            return False
        before = self.known, self.problem
        self._look, self._has_read = look, True
        try:
            self.known, self.problem = self._read(), None
        except SettingsError as error:
            self.known, self.problem = [], str(error)
        if self.problem is not None and self.problem != before[1]:
            log.warning("the token %s is refused for now: %s", self.name, self.problem)
        return (self.known, self.problem) != before


class Tokens:
    """The valid tokens. Each request checks them, so that a revoked token is refused at once."""

    def __init__(self, sources: Iterable[_Source], *, clock: Clock | None = None) -> None:
        self._sources = list(sources)
        self._clock = SystemClock() if clock is None else clock
        self._bearers: dict[bytes, Bearer] = {}
        # Last use, by the token's name.
        self.uses: dict[str, datetime] = {}
        self._refresh(is_first=True)

    @classmethod
    def of(
        cls, token: str, others: Mapping[str, Caller | Bearer] | None = None, *, clock: Clock | None = None
    ) -> Tokens:
        """The operator's token and others. Raises SettingsError if two are equal."""
        bearers = {token: _OPERATOR}
        for one, given in (others or {}).items():
            bearer = given if isinstance(given, Bearer) else Bearer(caller=given)
            if one in bearers:
                raise _same(f"tokens.{bearer.caller.who}", bearers[one])
            bearers[one] = bearer
        known = [(_digest(one), bearer) for one, bearer in bearers.items()]
        return cls([_Source("of the settings", lambda: known)], clock=clock)

    @classmethod
    def read(
        cls,
        config: Config,
        home: Path,
        environ: Mapping[str, str],
        *,
        clock: Clock | None = None,
        is_strict: bool = True,
    ) -> Tokens:
        """All tokens of the home, the environment and the settings.

        A token whose file or variable is missing is refused until it exists. If strict, raises SettingsError
        for a file that cannot be trusted; otherwise such a token is refused, too.
        """
        sources = [_operator_source(home, environ, may_make=is_strict)]
        for name, settings in config.tokens.items():
            _check_methods(f"tokens.{name}.methods", settings.methods or ())
            sources.append(_settings_source(name, settings, home, environ))
        sources.append(_issued_source(home))
        tokens = cls(sources, clock=clock)
        if is_strict:
            tokens.check()
        return tokens

    def check(self) -> None:
        """Raises SettingsError for the first file that cannot be trusted, and for two equal tokens."""
        for source in self._sources:
            if source.problem is not None and source.is_wrong:
                raise SettingsError(source.problem)
        seen: dict[bytes, Bearer] = {}
        for source in self._sources:
            for digest, bearer in source.known:
                if digest in seen:
                    raise _same(f"tokens.{bearer.caller.who}", seen[digest])
                seen[digest] = bearer

    def replace(self, other: Tokens) -> None:
        """Use these tokens from now on; an old one is refused at its next request."""
        self._sources = other._sources
        self._refresh(is_first=True)

    def find(self, presented: str) -> bytes | None:
        """The digest of a valid token, else None; compared in constant time."""
        self._refresh()
        digest, found = _digest(presented), None
        for known in self._bearers:
            if hmac.compare_digest(digest, known):
                found = known
        return found if found is not None and self._is_valid(self._bearers[found]) else None

    def caller_of(self, digest: bytes) -> Caller | None:
        """The caller of a token; None if it was revoked or has expired. Called for every request."""
        self._refresh()
        bearer = self._bearers.get(digest)
        return bearer.caller if bearer is not None and self._is_valid(bearer) else None

    def digest_of(self, name: str) -> bytes | None:
        """The digest of the valid token with this name, else None."""
        self._refresh()
        for digest, bearer in self._bearers.items():
            if bearer.caller.who == name:
                return digest if self._is_valid(bearer) else None
        return None

    def note_use(self, digest: bytes) -> None:
        bearer = self._bearers.get(digest)
        if bearer is not None:
            self.uses[bearer.caller.who] = self._clock.now()

    def problems(self) -> list[str]:
        """Why some tokens are refused now, each with its remedy."""
        self._refresh()
        return [
            f"the token {source.name} is refused for now: {source.problem}"
            for source in self._sources
            if source.problem is not None
        ]

    def _is_valid(self, bearer: Bearer) -> bool:
        return bearer.expires_at is None or self._clock.now() < bearer.expires_at

    def _refresh(self, *, is_first: bool = False) -> None:
        now_us = to_micros(self._clock.now())
        # Refresh every source: `any` would stop at the first change.
        changed = [source for source in self._sources if source.refresh(now_us)]
        if not changed and not is_first:
            return
        bearers: dict[bytes, Bearer] = {}
        doubled: set[bytes] = set()
        for source in self._sources:
            for digest, bearer in source.known:
                if bearers.setdefault(digest, bearer) is not bearer:
                    doubled.add(digest)
        for digest in doubled:
            if bearers[digest] is not _OPERATOR:
                # The token would not identify its caller.
                log.warning("two tokens are equal, so both are refused: %s", bearers.pop(digest).caller.who)
        self._bearers = bearers


class TokenWatch(Service):
    """Service: checks the token files regularly, reports unusable ones, and saves the last use of each token
    for `holdfast tokens list`."""

    def __init__(
        self, tokens: Tokens, home: Path, *, on_problem: Callable[[str | None], None] = lambda _why: None
    ) -> None:
        """`on_problem` is called each time with what is wrong with tokens, or None."""
        super().__init__(every_s=WATCH_EVERY_S)
        self._tokens = tokens
        self._home = home
        self._on_problem = on_problem
        self._written: dict[str, datetime] = {}

    async def run_once(self) -> bool:
        """Check the files and save last uses; returns whether there were any."""
        problems = self._tokens.problems()
        self._on_problem("; ".join(problems) or None)
        return await asyncio.to_thread(self.save)

    def save(self) -> bool:
        uses = dict(self._tokens.uses)
        if uses == self._written:
            return False
        write_uses(self._home, read_uses(self._home) | uses)
        self._written = uses
        return True

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            with contextlib.suppress(SettingsError):  # the home was deleted
                self.save()


# --- sources


_OPERATOR = Bearer(caller=Caller(who=OPERATOR, scopes=ALL_SCOPES))


def _operator_source(home: Path, environ: Mapping[str, str], *, may_make: bool) -> _Source:
    if environ.get(TOKEN_VARIABLE):
        known = [(_digest(read_token(home, environ)), _OPERATOR)]
        return _Source(OPERATOR, lambda: known)
    if may_make:  # only at the start: later, a removed file means that its token is revoked
        read_token(home, environ)
    return _Source(
        OPERATOR,
        lambda: [(_digest(read_token(home, environ, may_make=False)), _OPERATOR)],
        home / TOKEN_NAME,
    )


def _settings_source(name: str, settings: TokenSettings, home: Path, environ: Mapping[str, str]) -> _Source:
    # Normalised as for the owner of tasks.
    owner = None if settings.owner is None else redact_name(settings.owner)
    caller = Caller(
        who=name,
        scopes=frozenset(settings.scopes),
        owner=owner,
        tasks=None if settings.tasks is None else frozenset(settings.tasks),
        methods=None if settings.methods is None else frozenset(settings.methods),
    )
    bearer = Bearer(caller=caller, expires_at=settings.expires_at)
    path = token_path(settings, home)

    def read() -> _Known:
        is_there = os.path.lexists(path) if path is not None else bool(environ.get(settings.token_env or ""))
        source.is_wrong = is_there
        return [(_digest(read_named_token(name, settings, home, environ)), bearer)]

    source = _Source(f"tokens.{name}", read, path)
    return source


def _issued_source(home: Path) -> _Source:
    def read() -> _Known:
        return [
            (
                bytes.fromhex(one.digest),
                Bearer(
                    caller=Caller(
                        who=one.name,
                        scopes=frozenset(one.scopes),
                        owner=None if one.owner is None else redact_name(one.owner),
                        tasks=None if one.tasks is None else frozenset(one.tasks),
                        methods=None if one.methods is None else frozenset(one.methods),
                    ),
                    expires_at=one.expires_at,
                ),
            )
            for one in read_issued(home)
        ]

    return _Source(f"file {ISSUED_NAME}", read, home / ISSUED_NAME)


def _check_methods(key: str, methods: Iterable[str]) -> None:
    problem = unknown_method_in(methods)
    if problem is not None:
        raise SettingsError(f"{key}: {problem}")


def unknown_method_in(methods: Iterable[str]) -> str | None:
    """The first unknown name in a list of methods; None if all exist."""
    import difflib

    from holdfast.api.methods import METHODS

    for name in methods:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, n=1)
            fix = f"did you mean {near[0]}?" if near else "the method rpc.describe lists them"
            return f"{name!r:.80} is not a method; {fix}"
    return None


def _may_be_racy(look: _Look, now_us: int) -> bool:
    return look is not None and abs(now_us - look[1] // 1000) < _SETTLED_US


def _same(key: str, other: Bearer) -> SettingsError:
    return SettingsError(f"{key} has the same token as {other.caller.who}: give each a token of its own")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


__all__ = ["Bearer", "TokenWatch", "Tokens", "unknown_method_in"]
