"""The words between a gateway and its supervisor."""

from __future__ import annotations

import json

import pytest

from holdfast.core.errors import SettingsError
from holdfast.gateway.supervisor_protocol import VARIABLE, GatewayReport, Supervised, line_of, read_supervised


def test_the_variable_is_read_field_for_field() -> None:
    written = {
        "tcp_fds": [3, 4],
        "unix_fd": 5,
        "life_fd": 6,
        "tell_fd": 7,
        "holds_resumes": True,
        "why": "crash: SIGKILL",
        "crashes": 5,
    }

    found = read_supervised({VARIABLE: json.dumps(written)})

    assert found == Supervised(**written)  # type: ignore[arg-type]
    assert found is not None
    assert found.fds == [3, 4, 5, 6, 7]


def test_without_a_supervisor_there_is_nothing_to_read() -> None:
    assert read_supervised({}) is None
    assert read_supervised({VARIABLE: ""}) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"tcp_fds": ["x"]}'])
def test_what_no_supervisor_wrote_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(SettingsError, match=f"{VARIABLE} .* unset it"):
        read_supervised({VARIABLE: text})


def test_a_word_is_one_line_of_json() -> None:
    assert [line_of(word) for word in GatewayReport] == [
        b'{"event":"ready"}\n',
        b'{"event":"alive"}\n',
        b'{"event":"draining"}\n',
        b'{"event":"healthy"}\n',
        b'{"event":"quarantined"}\n',
    ]
