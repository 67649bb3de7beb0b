"""How a loop over turns was left: by `break` or `return`, or by an exception.

`async for` tells its iterator nothing when the program leaves it. But the loop alone holds the iterator: it
is destroyed where the loop is left, and the instruction there tells why. `break`, `return` and the loop's own
end take the iterator off the stack; an exception interrupts some other instruction.

That is a detail of CPython's compiler. So a self-check runs when this module is imported, on small loops
whose answers are known. If one answer is wrong, every loop counts as left by an exception, which is safe: the
item of a plan that was left is not marked as done, and its turn is replayed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine, Iterable
from opcode import opmap
from types import FrameType
from typing import Any

# What takes an iterator off the stack: POP_TOP up to Python 3.13, POP_ITER from 3.14 on.
_POPS = frozenset(opmap[name] for name in ("POP_TOP", "POP_ITER", "END_ASYNC_FOR") if name in opmap)


def _is_at_pop(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_code[frame.f_lasti] in _POPS


def was_left_on_purpose() -> bool:
    """To be called in `__del__` of a loop's iterator: False if an exception left the loop, or if this Python
    does not say."""
    # None if the iterator is destroyed outside of all frames, such as by the end of an event loop.
    where = sys._getframe(1).f_back  # noqa: SLF001 - the frame below `__del__`
    return IS_RELIABLE and _is_at_pop(where)


# --- the self-check


class _Probe:
    """An iterator without end that notes how its loop was left."""

    def __init__(self, answers: list[bool], most: int = 3) -> None:
        self._answers = answers
        self._left = most

    def __del__(self) -> None:
        self._answers.append(_is_at_pop(sys._getframe(1)))  # noqa: SLF001 - where it was destroyed

    def __aiter__(self) -> _Probe:
        return self

    async def __anext__(self) -> int:
        self._left -= 1
        if self._left < 0:
            raise StopAsyncIteration
        return self._left


async def _break(answers: list[bool]) -> None:
    async for _ in _Probe(answers):
        break


async def _break_in_with(answers: list[bool]) -> None:
    async for number in _Probe(answers):
        with contextlib.suppress(KeyError):
            if number < 2:
                break


async def _return(answers: list[bool]) -> int:
    async for number in _Probe(answers):
        if number < 2:
            return number
    return 0


async def _end(answers: list[bool]) -> None:
    async for _ in _Probe(answers):
        pass


async def _raise(answers: list[bool]) -> None:
    async for number in _Probe(answers):
        raise KeyError(number)


async def _raise_in_call(answers: list[bool]) -> None:
    async for number in _Probe(answers):
        _ = [][number]


async def _raise_in_try(answers: list[bool]) -> None:
    try:
        async for number in _Probe(answers):
            try:
                raise KeyError(number)
            finally:
                number += 1
    except KeyError:
        pass


_KNOWN: tuple[tuple[Callable[[list[bool]], Coroutine[Any, Any, object]], bool], ...] = (
    (_break, True),
    (_break_in_with, True),
    (_return, True),
    (_end, True),
    (_raise, False),
    (_raise_in_call, False),
    (_raise_in_try, False),
)


def _answers_of(loop: Callable[[list[bool]], Coroutine[Any, Any, object]]) -> list[bool]:
    answers: list[bool] = []
    with contextlib.suppress(StopIteration, LookupError):
        loop(answers).send(None)
    return answers


def check(
    known: Iterable[tuple[Callable[[list[bool]], Coroutine[Any, Any, object]], bool]] = _KNOWN,
) -> bool:
    """Whether this Python gives the right answer for each of these loops."""
    return all(_answers_of(loop) == [is_on_purpose] for loop, is_on_purpose in known)


IS_RELIABLE = check()
