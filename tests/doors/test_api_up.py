"""The doors of a real gateway: `holdfast up` in a process of its own, restarted under its clients."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.conftest import quick_directory
from tests.doors.calls import PROGRAM, Run, environment, run_process
from tests.doors.terminals import Beside, Terminal

pytestmark = pytest.mark.slow

SETTINGS = """
[gateway]
port = 0
rate_limit_per_s = 10000

[agents.echo]
callable = "echo_agent:answer"

[agents.silent]
callable = "echo_agent:nothing"

[agents.asker]
callable = "echo_agent:ask"

[agents.upgrader]
callable = "echo_agent:upgrade"
"""
# Enough for a restart to come among them.
POSTED = 100
TOKENS = """
[tokens.board]
token_file = "board"

[tokens.plugin]
token_file = "plugin"
scopes = ["operator.read", "operator.write"]
owner = "plugin"
"""
AGENT = """
import holdfast as hf

def answer(text: str) -> str:
    return f"you said {text}"

def nothing(text: str) -> None:
    return None

@hf.task
async def ask(run: hf.Run, message) -> str:
    return "painted it " + await run.ask("which colour?", ["red", "blue"])

@hf.task
async def upgrade(run: hf.Run, message) -> str:
    try:
        await run.requires_restart("a new driver")
    except hf.RestartRefused as refused:
        return f"no: {refused.why}"
    return f"restarted in run {run.number}"
"""


class Up:
    """One `holdfast up`, and how to reach it."""

    def __init__(self, home: Path, up: subprocess.Popen[str]) -> None:
        self.home = home
        self.up = up
        assert up.stdout is not None
        self.facts: dict[str, Any] = msgspec.json.decode(up.stdout.readline())
        self.had_token = (home / "token").exists()
        self.url = str(self.facts["urls"][0])

    def post(self, http: httpx.Client, method: str, params: object) -> httpx.Response:
        token = (self.home / "token").read_text(encoding="utf-8").strip()
        return self.ask(http, method, params, token)

    def ask(self, http: httpx.Client, method: str, params: object, token: str) -> httpx.Response:
        return http.post(
            f"{self.url}/rpc/{method}", json=params, headers={"authorization": f"Bearer {token}"}
        )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_directory(tmp_path) as directory:
        home = directory / "home"
        home.mkdir(mode=0o700)
        (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")
        (home / "echo_agent.py").write_text(AGENT, encoding="utf-8")
        yield home


@pytest.fixture
def running(home: Path, tmp_path: Path) -> Iterator[Up]:
    with (tmp_path / "log").open("w") as log:
        up = subprocess.Popen(
            [*PROGRAM, "up", "--json"],
            env=environment(home),
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            running = Up(home, up)
            # Answered by the gateway itself, so it has a token by then.
            assert run_process(home, "gateway", "status").status == 0
            yield running
        finally:
            up.send_signal(signal.SIGTERM)
            try:
                up.wait(60)
            finally:
                up.kill()
                assert up.stdout is not None
                up.stdout.close()


def test_commands_speak_to_a_running_gateway_and_survive_its_restart(running: Up) -> None:
    home = running.home

    answered = run_process(home, "chat", "echo", "-m", "hello")
    before = run_process(home, "gateway", "status", "--json").json
    restarted = run_process(home, "gateway", "restart", "--reason", "a test")
    after = run_process(home, "gateway", "status", "--json").json
    again = run_process(home, "chat", "echo", "-m", "still there?")
    told = run_process(home, "gateway", "restarts", "--json").json
    screen = run_process(home, "status")

    assert (answered.status, answered.out) == (0, "you said hello\n")
    assert restarted.status == 0, restarted.err
    assert before["bootId"] != after["bootId"]
    assert after["lastRestart"]["reason"] == "a test"
    assert again.out == "you said still there?\n"
    assert [one["reason"] for one in told["restarts"]] == ["a test"]
    assert "serving" in screen.out


def test_an_agent_that_needs_a_restart_is_refused_or_gets_it(running: Up, run: Run) -> None:
    home, key = running.home, "agent:upgrader:main"
    manifest = home / "restart-manifest.json"
    manifest.mkdir()
    refused = run("chat", "upgrader", "-m", "upgrade")
    transcript = run("sessions", "show", key).out
    with httpx.Client(timeout=60, trust_env=False) as http:
        (blocked,) = running.post(http, "gateway.restarts", {}).json()["restarts"]
    screen = run("status").out
    manifest.rmdir()
    restarted = run("chat", "upgrader", "-m", "upgrade again")
    found = run("gateway", "restarts", "--json").json["restarts"]

    why = f"the manifest {manifest} cannot be written (Is a directory)"
    assert (refused.status, refused.out) == (0, f"no: {why}\n")
    assert f"[System] The restart that this session asked for was refused: {why}" in transcript
    assert (blocked["status"], blocked["whyBlocked"], blocked["triggeredBy"]) == ("blocked", why, key)
    assert "not restarted" in screen
    assert why in screen
    assert (restarted.status, restarted.out) == (0, "restarted in run 2\n")
    assert [(one["status"], one["reason"], one["triggeredBy"]) for one in found] == [
        ("recovered", "a new driver", key),
        ("blocked", "a new driver", key),
    ]


def test_a_caller_that_talks_is_told_why_nothing_is_said(running: Up, run: Run) -> None:
    home = running.home

    nothing = run("chat", "silent", "-m", "hello")
    with Beside(home, "chat", "asker", "-m", "paint it") as chat:
        chat.read_until("waits for an answer: which colour? (`holdfast questions answer ques_")
        (question,) = run("questions", "list", "--json").json["questions"]
        answered = run("questions", "answer", question["id"], "red")
        ended = chat.end()

    assert (nothing.status, nothing.out) == (0, "")
    assert "agent:silent:main finished without an answer" in nothing.err
    assert answered.status == 0
    assert ended == (0, "painted it red\n")


def test_a_gateway_that_could_not_start_again_is_not_restarted(running: Up, run: Run) -> None:
    home = running.home
    settings, agent = home / "holdfast.toml", home / "echo_agent.py"
    before = run("gateway", "status", "--json").json["bootId"]
    whole = agent.read_text(encoding="utf-8")

    agent.write_text("def answer(:\n", encoding="utf-8")
    broken = run("gateway", "restart")
    agent.write_text(whole, encoding="utf-8")
    settings.write_text(
        settings.read_text(encoding="utf-8") + '\n[agents.typo]\ncallable = "echo_agent:nothere"\n',
        encoding="utf-8",
    )
    typo = run("gateway", "restart", "--force")
    listed = run("gateway", "restarts", "--json").json["restarts"]
    answered = run("chat", "echo", "-m", "hello")
    after = run("gateway", "status", "--json").json["bootId"]

    assert (broken.status, typo.status) == (3, 3)
    assert [one["status"] for one in listed] == ["blocked", "blocked"]
    assert "the next gateway could not start: agents.asker.callable" in listed[1]["whyBlocked"]
    assert "the next gateway could not start: agents.asker.callable" in broken.err
    assert "agents.typo.callable is 'echo_agent:nothere': echo_agent has no 'nothere'" in typo.err
    assert answered.out == "you said hello\n"
    assert after == before


def test_a_mistake_in_the_settings_keeps_no_client_from_a_gateway_that_goes_on(running: Up, run: Run) -> None:
    home = running.home
    settings = home / "holdfast.toml"
    settings.write_text(settings.read_text(encoding="utf-8") + "\n[gateway.prot]\nx = 1\n", encoding="utf-8")

    answered = run("chat", "echo", "-m", "hello")
    listed = run("agents", "list", "--json")

    assert (answered.status, answered.out) == (0, "you said hello\n")
    assert "gateway.prot" in answered.err
    assert [one["name"] for one in listed.json["agents"]] == ["asker", "echo", "silent", "upgrader"]


LATE = '\n[agents.late]\ncallable = "late_agent:answer"\n'


def test_refused_settings_are_shown_everywhere_and_apply_when_their_cause_is_mended(
    running: Up, run: Run
) -> None:
    home = running.home
    settings = home / "holdfast.toml"
    before = settings.read_text(encoding="utf-8")
    boot = gateway_of(run)["bootId"]

    settings.write_text(before + LATE, encoding="utf-8")
    eventually(lambda: gateway_of(run)["settingsRefused"] is not None)

    shown = run("status")
    checked = run("config", "check", "--json")
    listed = run("agents", "list", "--json")
    with httpx.Client(timeout=60) as http:
        token = (home / "token").read_text(encoding="utf-8").strip()
        ready = http.get(f"{running.url}/readyz", headers={"authorization": f"Bearer {token}"})
    why = "the next gateway could not start: agents.late.callable"
    assert why in shown.out
    assert "`holdfast config check`" in shown.out
    (check,) = [one for one in checked.json["checks"] if one["name"] == "gateway"]
    assert (checked.status, check["verdict"]) == (1, "fail")
    assert why in check["message"]
    assert [one["name"] for one in listed.json["agents"]] == ["asker", "echo", "silent", "upgrader"]
    assert why in listed.json["settingsRefused"]
    assert why in listed.err
    assert (ready.status_code, ready.json()["settings"]) == (200, "refused")
    assert why in ready.json()["settingsRefused"]

    # Back to what holds: no run is interrupted for it.
    settings.write_text(before, encoding="utf-8")
    eventually(lambda: gateway_of(run)["settingsRefused"] is None)
    assert "gateway" not in {one["name"] for one in failures_of(run("config", "check", "--json"))}
    assert gateway_of(run)["bootId"] == boot

    # The module comes, and no person touches the settings.
    settings.write_text(before + LATE, encoding="utf-8")
    eventually(lambda: gateway_of(run)["settingsRefused"] is not None)
    (home / "late_agent.py").write_text(AGENT, encoding="utf-8")
    eventually(lambda: gateway_of(run)["bootId"] != boot)
    answered = run("chat", "late", "-m", "hello")
    assert (answered.status, answered.out) == (0, "you said hello\n")
    assert gateway_of(run)["settingsRefused"] is None


def gateway_of(run: Run) -> Any:
    return run("gateway", "status", "--json").json


def failures_of(called: Any) -> list[Any]:
    return [one for one in called.json["checks"] if one["verdict"] == "fail"]


def eventually(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


def test_a_token_whose_file_comes_later_opens_the_doors_then(running: Up, run: Run) -> None:
    home = running.home
    settings, board = home / "holdfast.toml", "hf_" + "board" * 8
    text = '\n[tokens.board]\ntoken_file = "board"\n'
    settings.write_text(settings.read_text(encoding="utf-8") + text, encoding="utf-8")
    eventually(lambda: "tokens.board" in (gateway_of(run)["settingsRefused"] or ""))

    (home / "board").touch(mode=0o600)
    (home / "board").write_text(board, encoding="utf-8")

    eventually(lambda: gateway_of(run)["settingsRefused"] is None)
    with httpx.Client(timeout=60) as http:
        assert running.ask(http, "health", {}, board).status_code == 200


def test_text_that_is_none_is_refused_in_words(running: Up, run: Run) -> None:
    assert running.up.poll() is None
    for command in (("sessions", "send", "echo"), ("chat", "echo", "-m")):
        for text, why in (("\udcff", "not UTF-8"), ("", "is empty")):
            called = run(*command, text)

            assert (called.status, called.out) == (2, "")
            assert why in called.err
            assert "Traceback" not in called.err


def test_a_token_is_there_when_the_address_is_said_and_more_come_and_go_with_the_settings(
    running: Up,
    run: Run,
) -> None:
    """Nothing is restarted for it: it is the same life that hears them and then does not."""
    home = running.home
    boot = run("gateway", "status", "--json").json["bootId"]
    board, plugin = "board-" + "x" * 40, "plugin-" + "y" * 40
    for name, token in (("board", board), ("plugin", plugin)):
        (home / name).write_text(token)
        (home / name).chmod(0o600)
    with httpx.Client(timeout=30, verify=False, trust_env=False) as http:
        write_settings(home, TOKENS)
        until(lambda: running.ask(http, "health", {}, board).status_code == 200)
        read_only = running.ask(http, "chat.send", {"sessionKey": "echo", "message": "x"}, board)
        owned = running.ask(http, "ledger.create", {"name": "nobody", "goal": "x"}, plugin)
        shown = running.ask(http, "config.get", {"key": "tokens"}, board)
        write_settings(home, "")
        until(lambda: running.ask(http, "health", {}, board).status_code == 401)

    assert read_only.status_code == 403
    assert owned.json()["isNew"]
    assert board not in shown.text
    assert run("gateway", "status", "--json").json["bootId"] == boot
    assert running.had_token


def write_settings(home: Path, more: str) -> None:
    beside = home / ".holdfast.toml.new"
    beside.write_text(SETTINGS + more, encoding="utf-8")
    beside.rename(home / "holdfast.toml")


def until(is_so: Callable[[], bool], patience_s: float = 30.0) -> None:
    give_up_at = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < give_up_at
        # Wrong tokens are counted, and a few are all that one may try.
        time.sleep(0.5)


def test_messages_that_are_posted_through_a_restart_are_neither_lost_nor_doubled(
    running: Up, run: Run
) -> None:
    """The client sends again, with the same key, when an accepted connection broke."""
    refused: list[str] = []

    def post_all() -> None:
        with httpx.Client(timeout=30, verify=False, trust_env=False) as http:
            for number in range(POSTED):
                params = {"sessionKey": "echo", "message": f"{number}", "idempotencyKey": f"{number}"}
                while True:
                    try:
                        answer = running.post(http, "chat.send", params)
                    except httpx.ConnectError as error:
                        refused.append(str(error))
                        continue
                    except httpx.TransportError:
                        continue
                    if answer.status_code == 200:
                        break

    posting = threading.Thread(target=post_all)
    posting.start()
    restarted = run("gateway", "restart", "--force")
    posting.join(120)

    last = run("chat", "echo", "-m", "the end")
    with httpx.Client(timeout=30, verify=False, trust_env=False) as http:
        told = running.post(http, "chat.history", {"sessionKey": "echo", "after": 0, "limit": 500}).json()
    asked = [message["text"] for message in told["messages"] if message["role"] == "user"]
    answers = [message["text"] for message in told["messages"] if message["role"] == "assistant"]
    assert restarted.status == 0, restarted.err
    assert last.status == 0
    assert refused == []
    assert asked == [*(str(number) for number in range(POSTED)), "the end"]
    assert sorted(answers) == sorted(f"you said {text}" for text in asked)


def test_a_question_is_answered_by_the_next_line_that_is_typed(running: Up) -> None:
    with Terminal(running.home, "chat", "asker") as chat:
        for typed, shown in [
            ("paint it", "which colour?"),
            ("green", "That is none of the choices."),
            (" Red", "painted it red"),
        ]:
            chat.press(f"{typed}\n")
            chat.read_until(shown)
        # What was none of the choices has waited for its turn.
        chat.press("\x04")

        assert chat.end() == 0
