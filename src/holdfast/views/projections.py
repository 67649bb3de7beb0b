"""The views of state files: where they are, and what a rebuild wrote."""

from __future__ import annotations

import msgspec


class FilesPlaceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the state files are. The newest campaign is null if there is none."""

    path: str
    campaigns: str
    newest_campaign: str | None


class FilesRebuiltView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many campaigns and files were written anew."""

    path: str
    campaigns: int
    files: int
