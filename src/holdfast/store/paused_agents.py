"""Reads and writes of agents of gateways that an operator has paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.agent import PausedAgent
from holdfast.core.clock import from_micros, to_micros

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

_LIMIT = 100_000


class PausedAgentTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def pause(self, agent: PausedAgent) -> None:
        """The first reason stays, if it is paused already."""
        self._sql.run(
            "pause_agent",
            {
                "name": agent.name,
                "reason": agent.reason,
                "paused_by": agent.paused_by,
                "now": to_micros(agent.paused_at),
            },
        )

    def resume(self, name: str) -> bool:
        """Whether it was paused."""
        return self._sql.one("unpause_agent", {"name": name}) is not None

    def all(self) -> dict[str, PausedAgent]:
        """By their names."""
        rows = self._sql.all("paused_agents", {"limit": _LIMIT})
        return {
            row[0]: PausedAgent(name=row[0], reason=row[1], paused_by=row[2], paused_at=from_micros(row[3]))
            for row in rows
        }
