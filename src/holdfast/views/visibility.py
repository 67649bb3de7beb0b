"""Where stored values are shown unredacted, and where they are redacted.

SECURITY.md has the same table; tests compare the two, and check each entry point.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Exposure(StrEnum):
    """How an entry point shows a value that may contain a secret."""

    # As stored.
    WHOLE = "whole"
    # With `[redacted:<pattern>]` in place of what looks like a secret.
    REDACTED = "redacted"


class ExposedPath(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One way by which stored values leave the ledger."""

    where: str
    seen: Exposure
    why: str
    # Its methods and commands; all others that show stored values redact them.
    methods: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


_WHOLE, _REDACTED = Exposure.WHOLE, Exposure.REDACTED

PLACES: Final = (
    ExposedPath(
        where="the program: arguments, results, lists, values, mail, answers, plan items, effects, tools",
        seen=_WHOLE,
        why="a program needs its own values back, also after a restart",
    ),
    ExposedPath(
        where="`handle.result()`, and the method `ledger.result` for tokens with `operator.write`",
        seen=_WHOLE,
        why="a result belongs to the program that asked for it",
        methods=("ledger.result",),
    ),
    ExposedPath(
        where="the documents of a flow: the method `flows.state` for tokens with `operator.write`",
        seen=_WHOLE,
        why="they belong to the flow's controller",
        methods=("flows.state",),
    ),
    ExposedPath(
        where="what `holdfast run` prints on stdout",
        seen=_WHOLE,
        why="it is the result of a program that was started there",
        commands=("run",),
    ),
    ExposedPath(
        where="the message and the history that an agent is given",
        seen=_WHOLE,
        why="an agent answers what was said",
    ),
    ExposedPath(
        where="an agent's answer on its channel: webhooks, apprise, and `holdfast chat`",
        seen=_WHOLE,
        why="it goes to the person who asked",
        commands=("chat",),
    ),
    ExposedPath(
        where="`chat.history`, `sessions.transcript` and `agent` for tokens with `operator.write`",
        seen=_WHOLE,
        why="a token that may write to a session takes part in it",
        methods=("chat.history", "sessions.transcript"),
    ),
    ExposedPath(
        where="every other method and command: lists, `show`, `wait`, reviews, questions, deliveries, status",
        seen=_REDACTED,
        why="they appear on screens and in scripts that others read",
    ),
    ExposedPath(
        where="`chat.history` and `sessions.transcript` for tokens that may only read",
        seen=_REDACTED,
        why="they only watch",
    ),
    ExposedPath(
        where="goals, names, keys, ids, notes, reasons, outputs of `run.output`, and paths of artifacts",
        seen=_REDACTED,
        why="they are written for people; redacted before they are stored, names by a hash",
    ),
    ExposedPath(
        where="errors, in the ledger and in answers of the CLI and the API",
        seen=_REDACTED,
        why="they quote values and travel far",
    ),
    ExposedPath(
        where="events, feeds, notices, alerts, metrics and the log of the gateway",
        seen=_REDACTED,
        why="they are copied to other systems",
    ),
    ExposedPath(
        where="documents of checkpoints, and previews of what steps and effects were called with",
        seen=_REDACTED,
        why="they are for people; the program has its own values from the journal",
    ),
    ExposedPath(
        where="settings: `config.get` and `holdfast config explain`",
        seen=_REDACTED,
        why="addresses and arguments of commands hold passwords",
    ),
)
