"""Large payloads: compressed, kept once under their digest, in the same transaction as what needs them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import RowDamaged
from holdfast.core.payload import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

INLINE_BYTES = 16 * 1024
# No JSON begins with a NUL, so a stored value that does is a reference.
_REFERENCE = b"\x00zstd:"


class Packed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A payload ready to be stored: what goes into the row, and the blob that it may point to."""

    stored: bytes
    digest: str | None = None
    body: bytes | None = None
    size_bytes: int = 0


def pack(payload: bytes) -> Packed:
    """Small payloads go into their row; large ones are compressed here, before any transaction begins."""
    if len(payload) <= INLINE_BYTES:
        return Packed(stored=payload)
    import zstandard  # only large payloads pay for the import

    digest = hashlib.blake2b(payload, digest_size=32).hexdigest()
    return Packed(
        stored=_REFERENCE + digest.encode(),
        digest=digest,
        body=zstandard.ZstdCompressor(level=3, write_checksum=True).compress(payload),
        size_bytes=len(payload),
    )


def is_reference(stored: bytes) -> bool:
    return stored.startswith(_REFERENCE)


class Blobs:
    """Reads and writes of blobs."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def keep(self, task_id: str, packed: Packed) -> bytes:
        """What to store in the row; the blob, if there is one, is kept for that task."""
        if packed.digest is not None:
            self._sql.run(
                "insert_blob",
                {"digest": packed.digest, "size_bytes": packed.size_bytes, "body": packed.body},
            )
            self._sql.run("use_blob", {"task_id": task_id, "digest": packed.digest})
        return packed.stored

    def open(self, stored: bytes) -> bytes:
        """The payload of a row: itself, or the blob it points to, checked against its digest."""
        if not is_reference(stored):
            return stored
        return self.open_digest(stored[len(_REFERENCE) :].decode("ascii", "replace"))

    def open_digest(self, digest: str) -> bytes:
        import zstandard

        row = self._sql.one("get_blob", {"digest": digest})
        if row is None:
            raise RowDamaged("blob", digest, "it is missing")
        try:
            payload = zstandard.ZstdDecompressor().decompress(row[0], max_output_size=MAX_PAYLOAD_BYTES * 2)
        except zstandard.ZstdError as error:
            raise RowDamaged("blob", digest, str(error)) from error
        if hashlib.blake2b(payload, digest_size=32).hexdigest() != digest:
            raise RowDamaged("blob", digest)
        return payload

    def stop_using(self, task_ids: list[str]) -> None:
        """Retention: blobs that only these tasks needed go."""
        rows = self._sql.all("stop_using_blobs", {"ids": self._sql.pack(task_ids)})
        if rows:
            digests = sorted({row[0] for row in rows})
            self._sql.run("delete_unused_blobs", {"digests": self._sql.pack(digests)})
