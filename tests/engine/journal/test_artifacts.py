"""Artifacts: a file or an output of a run is recorded with its checksum, and a newer record replaces it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from holdfast.core.errors import BadInput
from holdfast.core.step import ArtifactKind
from tests.engine.parts import Parts


async def test_a_file_is_recorded_with_its_checksum(parts: Parts, tmp_path: Path) -> None:
    claimed = await parts.carry()
    path = tmp_path / "report.txt"
    path.write_text("calm")

    artifact = await parts.artifacts.record_file(claimed.claim, path)

    assert artifact.sha256 == hashlib.sha256(b"calm").hexdigest()
    assert (artifact.kind, artifact.size_bytes, artifact.path) == (ArtifactKind.FILE, 4, str(path))


async def test_what_is_no_file_is_not_waited_for(parts: Parts, tmp_path: Path) -> None:
    """To open a pipe without a writer would never end."""
    claimed = await parts.carry()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(BadInput):
        await parts.artifacts.record_file(claimed.claim, pipe)


async def test_recording_an_artifact_again_replaces_the_record(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.artifacts.record_output(claimed.claim, "report", "calm")

    await parts.artifacts.record_output(claimed.claim, "report", "rough", kind=ArtifactKind.DIFF)

    found = await parts.store.read(lambda tx: tx.journal.artifacts([claimed.task.id]))
    (artifact,) = found[claimed.task.id]
    assert (artifact.content, artifact.kind) == ("rough", ArtifactKind.DIFF)
