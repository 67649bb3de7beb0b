"""What the guide to the settings shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.config.files import load
from holdfast.core.errors import SettingsError
from tests.architecture.pages import CONFIGURE
from tests.config.homes import write

GUIDE = CONFIGURE.read_text(encoding="utf-8")


def test_the_example_of_the_guide_is_read_as_it_stands(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    write(tmp_path, "holdfast.toml", "\n".join(examples))

    config = load(tmp_path, {}).config

    assert set(config.agents) == {"main", "sage"}
    assert config.schedules["pulse"].session == "cron-pulse"
    assert config.channels["hook"].agent == "main"
    assert config.tokens["board"].scopes == ["operator.read"]
    assert config.tokens["plugin"].owner == "agent:main:main"


def test_the_error_of_the_guide_is_what_one_gets(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", {"gateway": {"prot": 1}})

    with pytest.raises(SettingsError) as found:
        load(tmp_path, {})

    assert f"holdfast: {found.value}".replace(str(tmp_path), "/srv/holdfast") in GUIDE
