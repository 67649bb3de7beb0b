"""SealMode, and the placeholder for a sealed value that no key opens."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# JSON, so that views show it like any other value.
SEALED: Final = b'"[sealed]"'


class SealMode(StrEnum):
    """Which values of programs Holdfast seals before it stores them."""

    SECRETS = "secrets"
    ALL = "all"
    NEVER = "never"
