"""Record the artifacts of a run under its fence: files with their checksums, and outputs with their text."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from pathlib import Path

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_name, check_text
from holdfast.core.step import Artifact, ArtifactKind
from holdfast.engine.ledger.inputs import check_choice, check_claim
from holdfast.store import Store

MAX_OUTPUT_BYTES = 64 * 1024
_CHUNK = 1024 * 1024


class ArtifactRecorder:
    """Records artifacts. An artifact of the same name replaces the one before. Raises ClaimLost."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def record_file(
        self,
        claim: Claim,
        path: Path,
        *,
        kind: ArtifactKind | str = ArtifactKind.FILE,
        name: str | None = None,
    ) -> Artifact:
        """A file (or a diff in a file) that a step wrote, with its checksum."""
        check_claim(claim)
        if not isinstance(path, Path):
            raise BadInput("artifact", f"a path is needed, not {type(path).__name__}")
        kind = check_choice("kind", kind, ArtifactKind)
        try:
            path, sha256, size = await asyncio.to_thread(_measure, path)
        except OSError as error:
            raise BadInput("artifact", f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise BadInput("artifact", str(error)) from error
        artifact = Artifact(
            name=check_name("artifact", name or path.name),
            kind=kind,
            sha256=sha256,
            size_bytes=size,
            path=check_text("path", str(path)),
            recorded_at=self._clock.now(),
        )
        return await self._record(claim, artifact)

    async def record_output(
        self, claim: Claim, name: str, content: str, *, kind: ArtifactKind | str = ArtifactKind.OUTPUT
    ) -> Artifact:
        """A computed output or a diff, stored in the ledger itself."""
        check_claim(claim)
        kind = check_choice("kind", kind, ArtifactKind)
        if kind is ArtifactKind.FILE:
            raise BadInput("kind", "a file is recorded by its path")
        name = check_name("artifact", name)
        text = check_text(f"artifact {name}", content, max_bytes=MAX_OUTPUT_BYTES, may_be_empty=True)
        artifact = Artifact(
            name=name,
            kind=kind,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            size_bytes=len(text.encode()),
            content=text,
            recorded_at=self._clock.now(),
        )
        return await self._record(claim, artifact)

    async def _record(self, claim: Claim, artifact: Artifact) -> Artifact:
        await self._store.write(
            lambda tx: tx.journal.save_artifact(claim, artifact, now=artifact.recorded_at)
        )
        return artifact


def _measure(path: Path) -> tuple[Path, str, int]:
    return path.absolute(), *checksum(path)


def checksum(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file. Raises OSError for anything but a regular file: reading a pipe may block
    for ever."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
