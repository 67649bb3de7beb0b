"""Checks of the tools' arguments, before anything is done: text, paths, seconds, the effect's key."""

from __future__ import annotations

import math
import os
from pathlib import Path

from holdfast.core.errors import BadInput

MAX_SECONDS = 366 * 86_400.0


def current_key() -> str:
    """The key of the effect that runs or is verified now. Raises NotInRun outside an effect."""
    from holdfast.engine.program.effects import idempotency_key  # heavy, and needed only inside a run

    return idempotency_key()


def receipt_key(*, is_for_reading: bool = False) -> bytes | None:
    """The key that seals and opens the receipt of the current effect."""
    from holdfast.engine.program.effects import file_key

    return file_key("receipt", is_for_reading=is_for_reading)


def check_word(field: str, value: object) -> str:
    """Text that can be passed to another program: valid, and without a NUL."""
    if not isinstance(value, str):
        raise BadInput(field, f"text is needed, not {type(value).__name__}")
    if "\0" in value:
        raise BadInput(field, f"a NUL at {value.index(chr(0))}; remove it: no program can be passed one")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(field, f"half of a surrogate pair at {error.start}; it is not valid text") from error
    return value


def check_path(field: str, value: object) -> Path:
    """An absolute path; a relative one begins at the working directory."""
    text = check_word(field, os.fspath(value) if isinstance(value, os.PathLike) else value)
    if not text.strip():
        raise BadInput(field, "is empty")
    return Path(text).absolute()


def check_directory(field: str, value: object) -> Path:
    path = check_path(field, value)
    if not path.is_dir():
        raise BadInput(field, f"{path} is not a directory")
    return path


def check_seconds(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(field, f"a number of seconds is needed, not {type(value).__name__}")
    if not math.isfinite(value) or not 0 < value <= MAX_SECONDS:
        raise BadInput(field, f"more than 0 and at most {MAX_SECONDS:,.0f} seconds are needed")
    return float(value)
