"""SealMode, and what stands for a sealed value where no key opens it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# JSON, so that a view shows it as it shows any value.
SEALED: Final = b'"[sealed]"'


class SealMode(StrEnum):
    """Which values of programs are sealed before they are stored."""

    SECRETS = "secrets"
    ALL = "all"
    NEVER = "never"
