"""KeyView and the answers of the key commands; only ExportedView contains a key."""

from __future__ import annotations

import msgspec


class KeyView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The key of sealed values: where it is, and whether it fits the ledger."""

    store: str
    # `secrets`, `all` or `never`.
    seal: str
    # A description: `the file /srv/holdfast/key`.
    where: str
    # The fingerprint of the key found; null if there is none.
    fingerprint: str | None
    # The fingerprint of the ledger's key; null as long as nothing is sealed.
    wanted: str | None
    # Whether the key fits the ledger; null as long as the ledger has no key.
    opens: bool | None
    # Why the key is unusable, with the fix.
    problem: str | None = None


class RekeyedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The key was replaced, or there is none yet. After `--lost`, older sealed values cannot be read."""

    store: str
    # Null for a ledger without sealed values and without a key.
    before: str | None
    after: str | None
    where: str
    # The file with the old key, which older backups need.
    kept: str | None = None
    is_lost: bool = False
    # What to change by hand before the next start.
    todo: str | None = None


class ExportedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The key itself, or the file that it was written to."""

    fingerprint: str
    key: str | None = None
    file: str | None = None


class ImportedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the imported key is stored, and where the previous one is kept."""

    fingerprint: str
    file: str
    # Whether it was checked against a ledger.
    was_compared: bool
    kept: str | None = None
