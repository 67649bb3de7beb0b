"""Rows of what finished turns keep of their steps: a document for each turn, compressed, then sealed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.program_records import KeptStep, KeptSteps
from holdfast.core.seal_mode import SEALED
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, reads
from holdfast.store.sealing import CLOSED, MARK, Sealing

# Compressing less than this saves nothing.
_COMPRESSED_BYTES = 512
# What compressed data begins with; an encoded list begins differently.
_ZSTD = b"\x28\xb5\x2f\xfd"
# More than any turn keeps: a damaged document must not fill the memory.
_MAX_BYTES = 64 * 1024 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[KeptStep]).decode


def pack_kept(steps: Sequence[KeptStep]) -> bytes:
    """The steps as they are stored, before they are sealed. Call it before the transaction begins."""
    body = _encode(steps)
    if len(body) < _COMPRESSED_BYTES:
        return body
    import zstandard  # slow to import, and needed for long results only

    return zstandard.ZstdCompressor(level=1).compress(body)


def unpack_kept(body: bytes) -> list[KeptStep]:
    """Raises ValueError for a document that Holdfast did not write."""
    if not body.startswith(_ZSTD):
        return _decode(body)
    import zstandard

    try:
        return _decode(zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BYTES))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


@reads("kept step")
def kept_from_row(row: Row, sealing: Sealing = CLOSED) -> list[KeptStep] | None:
    """In the order of the turn's steps; None for a reader without the key."""
    if digest_of(*row[:4]) != row[4]:
        raise RowDamaged("kept step", f"{row[0]}/{row[1]}/{row[2]}")
    body = sealing.open(row[3], _PLACE, row[0], row[1], str(row[2]))
    return None if body is SEALED else unpack_kept(body)


def row_from_kept(task_id: str, loop: str, seq: int, kept: KeptSteps, sealing: Sealing) -> Params:
    place = (_PLACE, task_id, loop, str(seq))
    row: Params = {
        "task_id": task_id,
        "loop": loop,
        "seq": seq,
        "body": sealing.seal_known(kept.body, *place, is_secret=kept.is_secret),
    }
    return row | {"digest": digest_of(*row.values())}


def kept_row_of(row: Row, task_id: str, sealing: Sealing) -> Params:
    """The row, copied to another task: a fork shares the turns of its source."""
    body = sealing.open(row[3], _PLACE, row[0], row[1], str(row[2]))
    kept = KeptSteps(body=body, is_secret=row[3][:1] == MARK)
    return row_from_kept(task_id, row[1], row[2], kept, sealing)


_PLACE = "kept_steps.body"
