"""The tokens that open the doors: read anew as soon as one of their files changes, known by their digests."""

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

from holdfast.api.contract import ALL_SCOPES, Caller
from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE, read_named_token, read_token, token_path
from holdfast.config.token_file import ISSUED_NAME, OPERATOR, read_issued, read_uses, write_uses
from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.core.errors import SettingsError
from holdfast.core.redaction import redact_name
from holdfast.engine.aio.service import Service

if TYPE_CHECKING:
    from holdfast.config.gateway import Config, TokenSettings

log = logging.getLogger("holdfast")

# Two writes so close to each other may leave a file looking the same.
_SETTLED_US = 2_000_000
# How often files are looked at without a request, and the last uses of tokens are written down.
WATCH_EVERY_S = 2.0

_Look: TypeAlias = tuple[int, ...] | None


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a token lets in, and until when."""

    caller: Caller
    expires_at: datetime | None = None


_Known: TypeAlias = list[tuple[bytes, Bearer]]


class _Source:
    """Tokens of one file, or of none. A file that cannot be used opens nothing, and harms no other."""

    def __init__(self, name: str, read: Callable[[], _Known], path: Path | None = None) -> None:
        self.name = name
        self._read = read
        self._path = path
        self._look: _Look = None
        self._has_read = False
        self.known: _Known = []
        self.problem: str | None = None
        # Whether the problem is more than that the token is not there yet.
        self.is_wrong = True

    def refresh(self, now_us: int) -> bool:
        """Read it again if its file has changed; whether anything did."""
        if self._path is None and self._has_read:
            return False
        # Before it is read: what is written meanwhile is seen as a change.
        look = None if self._path is None else _look_at(self._path)
        if self._has_read and look == self._look and not _may_be_racy(look, now_us):
            return False
        before = self.known, self.problem
        self._look, self._has_read = look, True
        try:
            self.known, self.problem = self._read(), None
        except SettingsError as error:
            self.known, self.problem = [], str(error)
        if self.problem is not None and self.problem != before[1]:
            log.warning("the token %s opens nothing for now: %s", self.name, self.problem)
        return (self.known, self.problem) != before


class Tokens:
    """The tokens that hold now. Each request asks, so that one that was taken away opens nothing any more."""

    def __init__(self, sources: Iterable[_Source], *, clock: Clock | None = None) -> None:
        self._sources = list(sources)
        self._clock = SystemClock() if clock is None else clock
        self._bearers: dict[bytes, Bearer] = {}
        # When each was last used, by the name of its bearer.
        self.uses: dict[str, datetime] = {}
        self._refresh(is_first=True)

    @classmethod
    def of(
        cls, token: str, others: Mapping[str, Caller | Bearer] | None = None, *, clock: Clock | None = None
    ) -> Tokens:
        """The operator's token, and those of others. Raises SettingsError when two are the same."""
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
        """All that the home, the environment and the settings name.

        One whose file or variable is missing opens nothing until it is there. Raises SettingsError for one
        that cannot be trusted; if it is not strict, such a one opens nothing, either.
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
        """Raises SettingsError for the first that cannot be trusted, and for two that are the same."""
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
        """From now on those hold; the bearer of an old one is refused at the next request."""
        self._sources = other._sources
        self._refresh(is_first=True)

    def find(self, presented: str) -> bytes | None:
        """The digest by which a right token is known; in a time that says nothing about the wrong ones."""
        self._refresh()
        digest, found = _digest(presented), None
        for known in self._bearers:
            if hmac.compare_digest(digest, known):
                found = known
        return found if found is not None and self._is_valid(self._bearers[found]) else None

    def caller_of(self, digest: bytes) -> Caller | None:
        """Read at every request: a token that was taken away, or has expired, has none."""
        self._refresh()
        bearer = self._bearers.get(digest)
        return bearer.caller if bearer is not None and self._is_valid(bearer) else None

    def note_use(self, digest: bytes) -> None:
        bearer = self._bearers.get(digest)
        if bearer is not None:
            self.uses[bearer.caller.who] = self._clock.now()

    def problems(self) -> list[str]:
        """Why some tokens open nothing now, each with its remedy."""
        self._refresh()
        return [
            f"the token {source.name} opens nothing for now: {source.problem}"
            for source in self._sources
            if source.problem is not None
        ]

    def _is_valid(self, bearer: Bearer) -> bool:
        return bearer.expires_at is None or self._clock.now() < bearer.expires_at

    def _refresh(self, *, is_first: bool = False) -> None:
        now_us = to_micros(self._clock.now())
        # Each of them, and not only up to the first that has changed.
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
                # Which of the two came in would be left to chance.
                log.warning("two tokens are the same, and open nothing: %s", bearers.pop(digest).caller.who)
        self._bearers = bearers


class TokenWatch(Service):
    """Service: looks at the files of tokens without a request, too, tells which of them cannot be used, and
    writes down when each token was last used, for `holdfast tokens list`."""

    def __init__(
        self, tokens: Tokens, home: Path, *, on_problem: Callable[[str | None], None] = lambda _why: None
    ) -> None:
        """`on_problem` hears what is wrong with tokens each time, and None when nothing is."""
        super().__init__(every_s=WATCH_EVERY_S)
        self._tokens = tokens
        self._home = home
        self._on_problem = on_problem
        self._written: dict[str, datetime] = {}

    async def run_once(self) -> bool:
        """Whether there was any use to write down."""
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
            with contextlib.suppress(SettingsError):  # the home is gone, and the list with it
                self.save()


# --- sources


_OPERATOR = Bearer(caller=Caller(who=OPERATOR, scopes=ALL_SCOPES))


def _operator_source(home: Path, environ: Mapping[str, str], *, may_make: bool) -> _Source:
    if environ.get(TOKEN_VARIABLE):
        known = [(_digest(read_token(home, environ)), _OPERATOR)]
        return _Source(OPERATOR, lambda: known)
    if may_make:  # at the start, and not again: a file that was removed is a revocation
        read_token(home, environ)
    return _Source(
        OPERATOR,
        lambda: [(_digest(read_token(home, environ, may_make=False)), _OPERATOR)],
        home / TOKEN_NAME,
    )


def _settings_source(name: str, settings: TokenSettings, home: Path, environ: Mapping[str, str]) -> _Source:
    # As the owner of tasks is stored.
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
    """What is wrong with a list of methods; None if each is one of the table."""
    import difflib

    from holdfast.api.methods import METHODS

    for name in methods:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, n=1)
            fix = f"did you mean {near[0]}?" if near else "`rpc.describe` lists them"
            return f"{name!r:.80} is no method; {fix}"
    return None


def _look_at(path: Path) -> _Look:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_size,
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_uid,
    )


def _may_be_racy(look: _Look, now_us: int) -> bool:
    return look is not None and abs(now_us - look[1] // 1000) < _SETTLED_US


def _same(key: str, other: Bearer) -> SettingsError:
    return SettingsError(f"{key} holds the token of {other.caller.who}: give each its own")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


__all__ = ["Bearer", "TokenWatch", "Tokens", "unknown_method_in"]
