"""/readyz, health and metrics tell the truth about the ledger, the settings and the resumes."""

from __future__ import annotations

import pytest

from holdfast.core.hold import RESUME, Hold
from tests.api.stand_in import OWNER_TOKEN, READ_TOKEN, TOKEN, ServedDoors

pytestmark = pytest.mark.slow

WRONG = "x" * 70


def test_a_gateway_with_which_all_is_well_says_so(house: ServedDoors) -> None:
    found = house.get("/readyz", token=None)

    assert found.status_code == 200
    assert found.json() == {"status": "serving", "ledger": "ok", "settings": "applied", "resumes": "going"}


def test_a_ledger_that_is_away_is_not_ready_and_the_rest_is_answered(house: ServedDoors) -> None:
    house.gateway.ledger_problem = "PostgreSQL: it cannot be reached"

    found = house.get("/readyz", token=None)
    status = house.post("gateway.status")
    metrics = house.get("/metrics")

    assert (found.status_code, found.json()["ledger"]) == (503, "away")
    assert status.json()["ledgerProblem"] == "PostgreSQL: it cannot be reached"
    assert (status.json()["status"], status.json()["isReady"]) == ("serving", False)
    assert not house.post("health").json()["ok"]
    assert house.get("/healthz", token=None).status_code == 200
    assert "holdfast_ledger_up 0.0" in metrics.text
    assert "holdfast_ready 0.0" in metrics.text
    assert "holdfast_tasks{" not in metrics.text


def test_refused_settings_and_held_resumes_are_told_and_stop_nothing(house: ServedDoors) -> None:
    house.gateway.settings_refused = "the settings are not applied: No module named 'garden'"
    house.gateway.holds = (Hold(why="the gateway crashed 5 times in a row", remedy=RESUME),)

    found = house.get("/readyz", token=READ_TOKEN)

    assert found.status_code == 200
    assert (found.json()["settings"], found.json()["resumes"]) == ("refused", "held")
    assert found.json()["settingsRefused"] == house.gateway.settings_refused
    assert found.json()["holds"] == [
        {"why": "the gateway crashed 5 times in a row", "remedy": "holdfast gateway resume"}
    ]
    assert house.post("agents.list").json()["settingsRefused"] == house.gateway.settings_refused
    assert "holdfast_settings_refused 1.0" in house.get("/metrics").text
    assert "holdfast_resumes_held 1.0" in house.get("/metrics").text


@pytest.mark.parametrize(
    ("token", "is_told"),
    [(None, False), (WRONG, False), (OWNER_TOKEN, False), (READ_TOKEN, True), (TOKEN, True)],
    ids=["none", "wrong", "owner", "read", "all"],
)
def test_the_reasons_are_for_callers_that_may_read(
    house: ServedDoors, token: str | None, is_told: bool
) -> None:
    house.gateway.ledger_problem = "SQLite: /srv/secret/ledger.db is read-only"
    house.gateway.settings_refused = "no module named private"

    found = house.get("/readyz", token=token)

    assert (found.status_code, found.json()["settings"]) == (503, "refused")
    assert ("ledgerProblem" in found.json()) is is_told
    assert ("private" in found.text) is is_told
