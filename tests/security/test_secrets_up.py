"""A write token makes a running gateway send no value of its environment anywhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.doors.calls import run_process
from tests.security.running_gateway import RunningGateway, eventually, recorder

pytestmark = pytest.mark.slow

OPERATOR = "hf_test_operator_" + "0" * 32
WRITER = "hf_test_writer_" + "1" * 32
SETTINGS = """
tasks = ["sending"]

[gateway]
rate_limit_per_s = 10000

[tokens.writer]
token_env = "WRITER_TOKEN"
scopes = ["operator.read", "operator.write"]

[secrets.SHOP]
env = "SHOP_KEY"
tasks = ["buy"]
"""
PROGRAM = """
import urllib.request
import holdfast as hf

def post(url: str, text: str) -> None:
    urllib.request.urlopen(url, data=text.encode()).close()

@hf.task
async def send(run: hf.Run, url: str, token: hf.Secret) -> None:
    await run.step(post, url, token)

@hf.task
async def buy(run: hf.Run, url: str) -> None:
    await run.step(post, url, hf.secret("SHOP"))

@hf.task
async def steal(run: hf.Run, url: str, name: str) -> None:
    await run.step(post, url, hf.secret(name))
"""


def test_a_write_token_gets_no_variable_of_the_gateway_sent_anywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS)
    (home / "sending.py").write_text(PROGRAM)
    environ = {
        "HOLDFAST_TOKEN": OPERATOR,
        "WRITER_TOKEN": WRITER,
        "SHOP_KEY": "value of SHOP_KEY",
        "OTHER": "value of OTHER",
    }

    def ended(gateway: RunningGateway, task_id: str) -> dict[str, str]:
        found = gateway.post("ledger.result", {"taskId": task_id, "waitMs": 5000}, token=WRITER).json()
        return found if found["hasEnded"] else {}

    with recorder() as (url, sent), RunningGateway(home, **environ) as gateway:
        for name in ("HOLDFAST_TOKEN", "WRITER_TOKEN", "SHOP_KEY", "SHOP", "OTHER", "PATH"):
            asked = {"name": "send", "goal": "x", "arguments": {"url": url, "token": {"$secret": name}}}
            refused = gateway.post("ledger.create", asked, token=WRITER)
            assert refused.status_code == 400
            assert "$secret" in refused.json()["error"]["message"]
        failed = {}
        for name in ("HOLDFAST_TOKEN", "OTHER", "SHOP"):
            asked = {"name": "steal", "goal": "x", "arguments": {"url": url, "name": name}}
            task_id = gateway.post("ledger.create", asked, token=WRITER).json()["taskId"]
            failed[name] = str(eventually(partial(ended, gateway, task_id)))
        assert sent == []

        allowed = {"name": "buy", "goal": "x", "arguments": {"url": url}}
        gateway.post("ledger.create", allowed, token=WRITER)
        eventually(lambda: sent)
        assert sent == ["value of SHOP_KEY"]

        # Settings that change while it runs count at the next step.
        (home / "holdfast.toml").write_text(SETTINGS.replace('["buy"]', '["buy", "steal"]'))
        held = {"key": "secrets.SHOP.tasks"}
        eventually(lambda: "steal" in gateway.post("config.get", held, token=OPERATOR).text)
        asked = {"name": "steal", "goal": "x", "arguments": {"url": url, "name": "SHOP"}}
        gateway.post("ledger.create", asked, token=WRITER)
        eventually(lambda: len(sent) == 2)

    assert "gateway's own" in failed["HOLDFAST_TOKEN"]
    assert "[secrets.OTHER]" in failed["OTHER"]
    assert "secrets.SHOP.tasks" in failed["SHOP"]
    assert all("steal" in words for words in failed.values())
    run = run_process(
        home,
        "run",
        str(home / "sending.py") + ":send",
        *("--arg", f"url={url}", "--json-arg", 'token={"$secret": "SHOP"}'),
    )
    assert run.status == 2
    assert "$secret" in run.err
