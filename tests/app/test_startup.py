"""What a gateway reads before it opens its ledger, and what keeps it from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.app.startup import prepare
from holdfast.app.trial import check_start
from holdfast.config import read_settings
from holdfast.core.errors import SettingsError

WEBHOOK = '[channels.hook]\nkind = "webhook"\nurl = "https://example.org/hook"\nsecret_env = "HOOK_SECRET"\n'
SECRET = "a-secret-of-many-letters-0123456789"


def test_a_start_reads_the_secrets_of_webhooks_once_by_their_channels(home: Path) -> None:
    (home / "holdfast.toml").write_text(WEBHOOK)

    startup = prepare(read_settings({}, home=str(home)), {"HOOK_SECRET": SECRET})

    assert startup.webhook_secrets == {"hook": (SECRET.encode(),)}
    assert list(startup.tasks) == ["cron.command"]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (WEBHOOK, "channels.hook"),
        ('tasks = ["no_such_module_at_all"]\n', "tasks: no_such_module_at_all"),
        ('[gateway]\npython_path = ["nowhere"]\n', "gateway.python_path"),
    ],
)
def test_a_trial_raises_what_would_keep_the_gateway_from_starting(
    home: Path, document: str, why: str
) -> None:
    (home / "holdfast.toml").write_text(document)

    with pytest.raises(SettingsError, match=why):
        check_start(read_settings({}, home=str(home)), {})


def test_a_trial_of_a_home_without_a_ledger_makes_none(home: Path) -> None:
    check_start(read_settings({}, home=str(home)), {})

    assert not (home / "ledger.db").exists()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path
