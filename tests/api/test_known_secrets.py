"""The gateway's own secrets: a request that contains one does not store it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.api.tokens import Tokens
from holdfast.config.files import load
from tests.api.stand_in import ServedDoors
from tests.engine.tables import dump

pytestmark = pytest.mark.slow

# Of letters alone, so that no pattern knows them.
FIRST, LATER, ALERTS = "lemonade" * 5, "sandcastle" * 4, "seashell" * 3


def settings(home: Path, **tokens: str) -> None:
    lines = [f'[gateway]\nalert_urls = ["tgram://{ALERTS}/main"]']
    for name, token in tokens.items():
        (home / f"{name}.token").write_text(token)
        (home / f"{name}.token").chmod(0o600)
        lines.append(f'[tokens.{name}]\ntoken_file = "{name}.token"\nscopes = ["operator.write"]')
    (home / "holdfast.toml").write_text("\n".join(lines))
    (home / "holdfast.toml").chmod(0o600)


def cancel_many(house: ServedDoors, token: str, reason: str) -> None:
    """Tasks that are cancelled side by side, each for a reason that tells the secret."""

    def cancel(number: int) -> int:
        made = house.post("ledger.create", {"name": "tides", "goal": f"number {number}"}, token=token)
        task_id = made.json()["taskId"]
        return house.post("ledger.cancel", {"taskId": task_id, "reason": reason}, token=token).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(cancel, range(24))) == {200}


@pytest.mark.parametrize("is_added_live", [False, True])
def test_a_token_that_is_told_in_requests_is_not_stored(
    house: ServedDoors, home: Path, *, is_added_live: bool
) -> None:
    settings(home, first=FIRST)
    house.tokens.replace(Tokens.read(load(home, {}).config, home, {}))
    told = FIRST
    if is_added_live:
        # As the gateway does when its settings have changed.
        told = LATER
        settings(home, first=FIRST, later=LATER)
        house.tokens.replace(Tokens.read(load(home, {}).config, home, {}))

    cancel_many(house, told, f"because {told} said so, and {ALERTS}")

    stored = repr(dump(house.gateway.store))
    assert "because [redacted:secret] said so" in stored
    assert told not in stored
    assert ALERTS not in stored
