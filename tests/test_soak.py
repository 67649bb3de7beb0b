"""What `make soak` runs exists, is documented, and a piece that fails is told."""

from __future__ import annotations

import pytest

from tests import soak
from tests.architecture.source import ROOT
from tests.soak import STAGES, Piece, SoakedTest, summary


@pytest.mark.parametrize("stage", STAGES, ids=lambda one: one.name)
def test_every_stage_counts_by_a_variable_that_its_test_reads_and_the_guide_names(stage: SoakedTest) -> None:
    path = stage.tests[0]

    assert f'os.environ.get("{stage.variable}")' in (ROOT / path).read_text()
    row = next(line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if f"`{path}`" in line)
    assert f"`{stage.variable}`" in row


def test_a_short_soak_has_small_pieces_and_a_long_one_has_more_of_them() -> None:
    stage = STAGES[0]

    assert stage.size(0.001) == 1
    assert stage.size(30) == stage.count / 2
    assert stage.size(480) == stage.count


def test_every_stage_has_its_turn_and_a_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(stage: SoakedTest, size: int) -> Piece:
        problem = "FAILED with 1" if stage is STAGES[1] else None
        return Piece(stage=stage, size=size, seconds=60.0, problem=problem)

    monkeypatch.setattr(soak, "_run", run)

    with pytest.raises(SystemExit) as ended:
        soak.main("0")

    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert all(said.count(stage.name) == 2 for stage in STAGES)
    assert "    FAILED with 1 after 60 s" in said


def test_the_summary_adds_up_what_was_done() -> None:
    stage = STAGES[0]
    pieces = [Piece(stage=stage, size=1500, seconds=90.0, problem=problem) for problem in (None, "FAILED")]

    line = next(line for line in summary(pieces).splitlines() if line.startswith(stage.name))

    assert line.split()[-4:] == ["2", "3,000", "3.0", "1"]
