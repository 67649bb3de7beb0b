"""The guide about agents and channels does what it says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.channels.webhook import read_inbound, verify
from holdfast.config.files import load
from holdfast.core.agent_checkpoint import read_document
from holdfast.core.message import Envelope, Role
from holdfast.runtimes.command import AgentPacket
from holdfast.runtimes.contract import AgentInput
from holdfast.runtimes.python import speaks_by_function, speaks_by_task
from tests.architecture.source import DOCS

PAGE = (DOCS / "guides" / "talk-to-agents.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [block for given, block in BLOCK.findall(PAGE) if given == language]


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "library"}
    exec(compile("\n".join(blocks("python")), "talk-to-agents.md", "exec"), names)
    return names


def test_the_settings_of_the_guide_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("\n".join(blocks("toml")))

    config = load(tmp_path, {}, {}).config

    assert set(config.agents) == {"scholar", "coder", "clerk", "claude", "codex", "claw"}
    assert set(config.channels) == {"team", "alarm"}
    assert set(config.schedules) == {"tide"}


def test_the_checkpoint_and_the_packet_of_the_guide_are_the_real_ones() -> None:
    document, packet, _ = blocks("json")

    assert read_document(document, ["task_…"]).next_actions == ["collect", "export"]
    assert set(msgspec.json.decode(packet)) == set(AgentPacket.__struct_encode_fields__)


def test_the_agents_of_the_guide_can_be_declared(programs: dict[str, Any]) -> None:
    speaks_by_function("agents.scholar.callable", programs["scholar"])
    speaks_by_task("agents.researcher.callable", programs["researcher"])
    envelope = Envelope(
        id="msg_1",
        session_key="agent:scholar:main",
        role=Role.USER,
        text="tides?",
        channel="team",
        peer="ada",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )

    said = programs["scholar"](envelope.text, envelope, [envelope])

    assert said == "ada asks 'tides?' after 1 other questions"
    assert AgentInput(message=envelope).history == ()


def test_the_signature_of_the_guide_is_accepted(programs: dict[str, Any]) -> None:
    *_, body = (block.encode() for block in blocks("json"))
    secret = b"a secret of the sea"

    verify("team", [secret], programs["signature"](secret, body), body, datetime.now(UTC))  # noqa: TID251 - as signed

    inbound = read_inbound("team", "scholar", body)
    assert inbound.session_key == "agent:scholar:team@team:group 7:3"
    assert inbound.channel_message_id == "1207"


def test_the_guide_lists_every_field_of_an_envelope() -> None:
    section = PAGE.split("## What an agent gets")[1].split("## Sessions")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(Envelope.__struct_fields__)
