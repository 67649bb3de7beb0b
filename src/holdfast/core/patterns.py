"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import AnyStr


def compiled_late(source: AnyStr, flags: int = 0) -> Callable[[], re.Pattern[AnyStr]]:
    """A function that compiles the expression at its first call, and keeps it.

    For modules that every process imports: `re.compile` at their top delays the first step of each process,
    and most processes use few of these expressions.
    """
    return functools.cache(lambda: re.compile(source, flags))
