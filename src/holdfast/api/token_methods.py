"""tokens.*: list, create, revoke and rotate tokens; only on the gateway's own host."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import ALL_SCOPES, Caller, GatewayDoor
from holdfast.api.params import NameText, Nothing, Params, TokenName
from holdfast.api.tokens import unknown_method_in
from holdfast.config import token_file
from holdfast.config.sections import Scope
from holdfast.config.token_file import OPERATOR, IssuedToken
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, NotFound, Refused
from holdfast.views.text import maybe_line, one_line
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView, TokenView

if TYPE_CHECKING:
    from holdfast.config.sections import Config, TokenSettings

log = logging.getLogger("holdfast")

MAX_NAMED = 1000


class TokenCreateAsked(Params, frozen=True, kw_only=True):
    """A new token: its name, scopes, limits and expiry."""

    name: TokenName
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1, max_length=3)] = msgspec.field(
        default_factory=lambda: ["operator.read"]
    )
    owner: NameText | None = None
    tasks: Annotated[list[NameText], msgspec.Meta(max_length=MAX_NAMED)] | None = None
    methods: Annotated[list[NameText], msgspec.Meta(max_length=MAX_NAMED)] | None = None
    expires_at: datetime | None = None


class TokenAsked(Params, frozen=True, kw_only=True):
    """One token, by its name."""

    name: TokenName


class TokenRotateAsked(Params, frozen=True, kw_only=True):
    """Replace a token, optionally with a new expiry."""

    name: TokenName
    expires_at: datetime | None = None


# --- methods


async def page(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> TokenPageView:  # noqa: ARG001 - a method
    return await asyncio.to_thread(read_page, gateway.home, gateway.config, SystemClock().now())


async def create(gateway: GatewayDoor, asked: TokenCreateAsked, caller: Caller) -> TokenMadeView:
    made = await asyncio.to_thread(create_token, gateway.home, gateway.config, asked, SystemClock().now())
    log.warning("%s created the token %s", caller.who, asked.name)
    return made


async def revoke(gateway: GatewayDoor, asked: TokenAsked, caller: Caller) -> TokenRevokedView:
    gone = await asyncio.to_thread(revoke_token, gateway.home, gateway.config, asked)
    log.warning("%s revoked the token %s", caller.who, asked.name)
    return gone


async def rotate(gateway: GatewayDoor, asked: TokenRotateAsked, caller: Caller) -> TokenMadeView:
    made = await asyncio.to_thread(rotate_token, gateway.home, gateway.config, asked, SystemClock().now())
    log.warning("%s rotated the token %s", caller.who, asked.name)
    return made


# --- also used by the CLI while no gateway runs


def read_page(home: Path, config: Config, now: datetime) -> TokenPageView:
    uses = token_file.read_uses(home)
    found = [
        TokenView(name=OPERATOR, source="home", scopes=sorted(ALL_SCOPES), last_used_at=uses.get(OPERATOR))
    ]
    found += [_of_settings(name, one, uses.get(name), now) for name, one in config.tokens.items()]
    found += [_view(one, now, uses.get(one.name)) for one in token_file.read_issued(home)]
    return TokenPageView(tokens=sorted(found, key=lambda one: one.name))


def create_token(home: Path, config: Config, asked: TokenCreateAsked, now: datetime) -> TokenMadeView:
    problem = unknown_method_in(asked.methods or ())
    if problem is not None:
        raise BadInput("methods", problem)
    terms = token_file.terms_of(
        scopes=list(dict.fromkeys(asked.scopes)),
        owner=asked.owner,
        tasks=asked.tasks,
        methods=asked.methods,
        expires_at=asked.expires_at,
    )
    made = token_file.create(home, asked.name, terms, taken=set(config.tokens), now=now)
    return TokenMadeView(token=_view(made.token, now), text=made.text)


def revoke_token(home: Path, config: Config, asked: TokenAsked) -> TokenRevokedView:
    if asked.name == OPERATOR:
        raise Refused(
            "the operator token cannot be revoked; replace it with `holdfast tokens rotate operator`"
        )
    try:
        token = token_file.revoke(home, asked.name)
    except NotFound:
        _refuse_of_settings(config, asked.name, "remove it there to revoke it")
        raise
    return TokenRevokedView(token=_view(token, None))


def rotate_token(home: Path, config: Config, asked: TokenRotateAsked, now: datetime) -> TokenMadeView:
    if asked.expires_at is not None and asked.expires_at.tzinfo is None:
        raise BadInput("expires_at", "add the UTC offset, such as 2030-01-31T00:00:00Z")
    if asked.name == OPERATOR:
        if asked.expires_at is not None:
            raise BadInput("expires_at", "the operator token does not expire; leave out the expiry")
        text = token_file.rotate_operator(home)
        return TokenMadeView(
            token=TokenView(name=OPERATOR, source="home", scopes=sorted(ALL_SCOPES)), text=text
        )
    try:
        made = token_file.rotate(home, asked.name, expires_at=asked.expires_at, now=now)
    except NotFound:
        _refuse_of_settings(config, asked.name, "change its file or its variable there")
        raise
    return TokenMadeView(token=_view(made.token, now), text=made.text)


def _refuse_of_settings(config: Config, name: str, fix: str) -> None:
    if name in config.tokens:
        raise Refused(f"the token {name} is defined in the settings, as tokens.{name}: {fix}")


def _view(token: IssuedToken, now: datetime | None, last_used_at: datetime | None = None) -> TokenView:
    # Ignore uses before the last rotation.
    is_of_this = last_used_at is not None and last_used_at >= token.since
    return TokenView(
        name=one_line(token.name),
        source="issued",
        scopes=list(token.scopes),
        owner=maybe_line(token.owner),
        tasks=None if token.tasks is None else [one_line(one) for one in token.tasks],
        methods=token.methods,
        created_at=token.created_at,
        rotated_at=token.rotated_at,
        expires_at=token.expires_at,
        is_expired=_is_over(token.expires_at, now),
        last_used_at=last_used_at if is_of_this else None,
    )


def _of_settings(name: str, one: TokenSettings, last_used_at: datetime | None, now: datetime) -> TokenView:
    return TokenView(
        name=one_line(name),
        source="settings",
        scopes=list(one.scopes),
        owner=maybe_line(one.owner),
        tasks=None if one.tasks is None else [one_line(task) for task in one.tasks],
        methods=one.methods,
        expires_at=one.expires_at,
        is_expired=_is_over(one.expires_at, now),
        last_used_at=last_used_at,
    )


def _is_over(expires_at: datetime | None, now: datetime | None) -> bool:
    return expires_at is not None and now is not None and expires_at <= now
