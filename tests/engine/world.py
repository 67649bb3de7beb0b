"""The world outside the ledger: what effects really did there, and where a process dies on its way."""

from __future__ import annotations

from collections import Counter

import holdfast as hf
from holdfast.testing import Crashed


class World:
    """Counts what was sent to it; it may raise, or the process that sends may die before or after it sent."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.keys: list[str] = []
        self.dies: str | None = None
        self.raises: list[BaseException] = []
        self.undone: list[str] = []

    def send(self, text: str) -> str:
        self.keys.append(hf.idempotency_key())
        if self.dies == "before":
            self.dies = None
            raise Crashed
        if self.raises:
            raise self.raises.pop(0)
        self.sent[text] += 1
        if self.dies == "after":
            self.dies = None
            raise Crashed
        return f"sent {text}"

    def verify(self, text: str) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened(f"found {text}") if self.sent[text] else hf.DidNotHappen()
