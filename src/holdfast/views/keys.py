"""KeyView and what the commands about the key of sealed values answer; none but ExportedView shows a key."""

from __future__ import annotations

import msgspec


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """The key of sealed values: where it is, and whether the ledger wants this one."""

    store: str
    # `secrets`, `all` or `never`.
    seal: str
    # In words: `the file /srv/holdfast/key`.
    where: str
    # Of the key that is there; null without one.
    fingerprint: str | None
    # Of the key that the ledger is sealed with; null as long as nothing is.
    wanted: str | None
    # Whether the key opens the ledger; null as long as the ledger has no key.
    opens: bool | None
    # Why the key that is there cannot be used, with the fix.
    problem: str | None = None


class RekeyedView(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger has another key now, or none yet. With `--lost` what was sealed before cannot be read."""

    store: str
    # Null for a ledger that has no sealed values and no key.
    before: str | None
    after: str | None
    where: str
    # The file with the old key, which backups from before need.
    kept: str | None = None
    is_lost: bool = False
    # What to change by hand before the next start.
    todo: str | None = None


class ExportedView(msgspec.Struct, frozen=True, kw_only=True):
    """The key itself, or the file that it was written to."""

    fingerprint: str
    key: str | None = None
    file: str | None = None


class ImportedView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the key from elsewhere lies now, and where the one before is kept."""

    fingerprint: str
    file: str
    # Whether it was compared with that of a ledger.
    was_compared: bool
    kept: str | None = None
