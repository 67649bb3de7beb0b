"""What all rows have in common: times, digests, and the treatment of damaged rows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.task import Failure, Origin
from holdfast.store.contract import Row

Params = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")

encode = msgspec.json.Encoder().encode
read_origin = msgspec.json.Decoder(Origin).decode
read_failure = msgspec.json.Decoder(Failure).decode

# The end of the year 9999, which is the last that a datetime can hold.
_LAST_MICROS = 253_402_300_799_999_999


def reads(
    noun: str, mend: Callable[[Row], Row] | None = None
) -> Callable[[Callable[Concatenate[Row, P], R]], Callable[Concatenate[Row, P], R]]:
    """Treats a row that does not decode as damaged, even if its digest matches: it may not cover the status.

    A noun of which many rows are read at once passes `mend`: the row is then repaired and returned as damaged
    instead of raising, because one bad row must not keep the others from being shown, claimed or resumed.
    """

    def wrap(read: Callable[Concatenate[Row, P], R]) -> Callable[Concatenate[Row, P], R]:
        @functools.wraps(read)
        def guarded(row: Row, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return read(row, *args, **kwargs)
            except (KeyError, ValueError, TypeError, OverflowError) as error:
                if mend is not None:
                    with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
                        mended = cast(Any, read(mend(row), *args, **kwargs))
                        return cast(R, msgspec.structs.replace(mended, is_damaged=True))
                raise RowDamaged(noun, str(row[0]), str(error)) from error

        return cast("Callable[Concatenate[Row, P], R]", guarded)

    return wrap


def mend_with(
    choices: dict[int, type[StrEnum]], dropped: tuple[int, ...], times: tuple[int, ...]
) -> Callable[[Row], Row]:
    """Makes a row readable: an invalid word becomes the first of its enumeration, an optional value None."""

    def mend(row: Row) -> Row:
        mended = list(row)
        for place, words in choices.items():
            if row[place] not in list(words):
                mended[place] = next(iter(words)).value
        for place in dropped:
            mended[place] = None
        for place in times:
            if isinstance(row[place], int) and not 0 <= row[place] <= _LAST_MICROS:
                mended[place] = 0
        return mended

    return mend


def micros_of(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def moment_of(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def json_of(value: msgspec.Struct | None) -> bytes | None:
    return None if value is None else encode(value)


def digest_of_late(record_id: str, payload: bytes | None) -> bytes | None:
    """The digest of a value that is added to a record later, such as an outcome; it has its own column."""
    return None if payload is None else digest_of(record_id, payload)
