"""What the OpenAPI document promises is so, for requests that fit it and for those that do not."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from schemathesis import GenerationMode, checks
from schemathesis.core.result import Ok

from holdfast.api import openapi, security
from tests.api.stand_in import TOKEN, ServedDoors, served_doors

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(2**32))
EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES") or 2)
# A schema cannot say all that a method asks of its parameters: 81.0 is an integer there, too.
NOT_PROMISED = [checks.positive_data_acceptance]
# It has no end: tests/api/test_events.py reads it.
WITHOUT = {"/events"}


def operations() -> Iterator[Any]:
    for found in schemathesis.openapi.from_dict(openapi.document()).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path not in WITHOUT:
            yield operation


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDoors]:
    print(f"HOLDFAST_SEED={SEED}")
    with served_doors(tmp_path_factory.mktemp("o")) as house, pytest.MonkeyPatch.context() as patch:
        patch.setattr(security, "GUESSES", 1e9)
        house.post("health", token="wrong")  # so much is allowed from here on
        patch.undo()
        yield house


def ways() -> Iterator[Any]:
    """A request whose body has no schema cannot break it."""
    for operation in operations():
        has_schema = operation.path.startswith("/rpc/")
        for mode in GenerationMode if has_schema else [GenerationMode.POSITIVE]:
            yield pytest.param(operation, mode, id=f"{operation.label}-{mode.value}")


@pytest.mark.parametrize(("operation", "mode"), list(ways()))
def test_every_route_answers_as_the_document_says(
    house: ServedDoors, operation: Any, mode: GenerationMode
) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers(case: Any) -> None:
        response = case.call(base_url=house.url, headers=headers, timeout=20)
        # Too much of what is wrong is refused, too; schemathesis does not count that as a refusal.
        is_refused = [checks.negative_data_rejection] if response.status_code == 413 else []
        case.validate_response(response, headers=headers, excluded_checks=[*NOT_PROMISED, *is_refused])

    answers()
