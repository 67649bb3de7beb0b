"""Large payloads: compressed, stored once under their digest, in the transaction that refers to them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import RowDamaged
from holdfast.core.payload import MAX_PAYLOAD_BYTES
from holdfast.core.seal_mode import SEALED
from holdfast.store.sealing import LedgerKey, Sealing

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

INLINE_BYTES = 16 * 1024
# From this size on, scanning and compressing a payload takes milliseconds.
HEAVY_BYTES = 256 * 1024
# JSON never begins with a NUL, so a stored value that does is a reference.
_REFERENCE = b"\x00zstd:"
# The prefix of the digest of a sealed blob, which is keyed.
_KEYED = "k"
_PLACE = "blobs.body"


class Packed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A payload ready to be stored: the value for the row, and the blob that it may refer to."""

    stored: bytes
    digest: str | None = None
    body: bytes | None = None
    size_bytes: int = 0


def pack(payload: bytes, sealing: Sealing) -> Packed:
    """Small payloads go into their row, which seals them; large ones are compressed here, and sealed if they
    hold a secret. If possible, call it before the transaction begins."""
    if len(payload) <= INLINE_BYTES:
        return Packed(stored=payload)
    if len(payload) >= HEAVY_BYTES:
        sealing.leave_loop()
    import zstandard  # slow to import, and needed for large payloads only

    key = sealing.key_for(payload)
    digest = _digest_of(payload, key)
    body = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(payload)
    return Packed(
        stored=_REFERENCE + digest.encode(),
        digest=digest,
        body=body if key is None else key.seal(body, (_PLACE, digest)),
        size_bytes=len(payload),
    )


async def pack_beside(payload: bytes, sealing: Sealing) -> Packed:
    """The same for a caller on an event loop: large payloads are scanned and compressed in a thread."""
    if len(payload) < HEAVY_BYTES:
        return pack(payload, sealing)
    import asyncio  # a caller that awaits has imported it; commands that only list do not need it

    return await asyncio.to_thread(pack, payload, sealing)


def _digest_of(payload: bytes, key: LedgerKey | None) -> str:
    if key is None:
        return hashlib.blake2b(payload, digest_size=32).hexdigest()
    return _KEYED + key.digest(payload, 32).hex()


def reference_to(payload: bytes) -> bytes:
    """The form of a payload in a digest: itself, or the reference it would have if it were not sealed."""
    return payload if len(payload) <= INLINE_BYTES else _REFERENCE + _digest_of(payload, None).encode()


def is_reference(stored: bytes) -> bool:
    return stored.startswith(_REFERENCE)


class Blobs:
    """Reads and writes of blobs."""

    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def keep(self, task_id: str, packed: Packed) -> bytes:
        """The value for the row; the blob, if there is one, is stored for that task."""
        if packed.digest is not None:
            self._sql.run(
                "insert_blob",
                {"digest": packed.digest, "size_bytes": packed.size_bytes, "body": packed.body},
            )
            self._sql.run("use_blob", {"task_id": task_id, "digest": packed.digest})
        return packed.stored

    def open(self, stored: bytes) -> bytes:
        """The payload of a row: the value itself, or the blob it refers to, checked against its digest."""
        if not is_reference(stored):
            return stored
        return self.open_digest(stored[len(_REFERENCE) :].decode("ascii", "replace"))

    def open_digest(self, digest: str) -> bytes:
        import zstandard

        row = self._sql.one("get_blob", {"digest": digest})
        if row is None:
            raise RowDamaged("blob", digest, "it is missing")
        body = self._sealing.open(row[0], _PLACE, digest)
        if body is SEALED:
            return SEALED
        try:
            payload = zstandard.ZstdDecompressor().decompress(body, max_output_size=MAX_PAYLOAD_BYTES * 2)
        except zstandard.ZstdError as error:
            raise RowDamaged("blob", digest, str(error)) from error
        key = self._sealing.opener if digest.startswith(_KEYED) else None
        if _digest_of(payload, key) != digest:
            raise RowDamaged("blob", digest)
        return payload

    def stop_using(self, task_ids: list[str]) -> None:
        """Retention: delete the blobs that only these tasks needed."""
        rows = self._sql.all("stop_using_blobs", {"ids": self._sql.pack(task_ids)})
        if rows:
            digests = sorted({row[0] for row in rows})
            self._sql.run("delete_unused_blobs", {"digests": self._sql.pack(digests)})
