"""Where the outer key is, which of them is used, and which is refused."""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.core.errors import KeyProblem
from holdfast.core.redaction import redact_text
from holdfast.store.outer_keys import (
    CommandKey,
    FileKey,
    GivenKey,
    VariableKey,
    choose,
    read_key_file,
    read_text,
    text_of,
    write_key_file,
)
from holdfast.store.sealing import fingerprint

KEY = bytes(range(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key"


def written(path: Path, text: str | None = None) -> Path:
    path.write_text(f"{text_of(KEY)}\n" if text is None else text, encoding="utf-8")
    path.chmod(0o600)
    return path


# --- the text of a key


@pytest.mark.parametrize(
    "text",
    [
        text_of(KEY),
        f"  {text_of(KEY)}\n",
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.b64encode(KEY).decode().rstrip("="),
        base64.urlsafe_b64encode(KEY).decode(),
    ],
)
def test_a_key_is_read_in_every_form_that_tools_make(text: str) -> None:
    assert read_text(text, "here") == KEY


def test_every_key_has_a_text_that_is_read_as_the_same_key() -> None:
    for _ in range(200):
        key = secrets.token_bytes(32)
        assert read_text(text_of(key), "here") == key
        assert read_text(base64.b64encode(key).decode(), "here") == key


@pytest.mark.parametrize(
    "text",
    [
        "correct horse battery staple",
        text_of(KEY)[:-1],
        f"{text_of(KEY)}\n{text_of(KEY)}",
        KEY.hex()[:-2],
        "hf_key_short",
        f"{text_of(KEY)}=x",
        "é" * 43,
    ],
)
def test_what_could_be_guessed_is_no_key_and_is_never_shown(text: str) -> None:
    with pytest.raises(KeyProblem, match="does not hold a key: 32 random bytes") as found:
        read_text(text, "the variable X")

    assert text not in str(found.value)
    assert "secrets.token_urlsafe(32)" in str(found.value)


def test_a_key_that_was_read_is_a_secret_wherever_it_is_shown() -> None:
    key = secrets.token_bytes(32)

    read_text(key.hex(), "here")

    assert key.hex() not in redact_text(f"it was {key.hex()}")
    assert text_of(key) not in redact_text(f"it was {text_of(key)}")


# --- files


def test_a_key_file_is_private_and_holds_one_line(path: Path) -> None:
    key = FileKey(path).make()

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text(encoding="utf-8") == f"{text_of(key)}\n"
    assert FileKey(path).load() == key
    assert [one.name for one in path.parent.iterdir()] == ["key"]


def test_the_directory_of_a_key_is_made_privately(tmp_path: Path) -> None:
    FileKey(tmp_path / "a" / "home" / "key").make()

    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


def test_the_first_who_makes_a_key_wins(path: Path) -> None:
    first = FileKey(path).make()

    assert FileKey(path).make() == first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused_with_the_command_that_mends_it(path: Path, mode: int) -> None:
    written(path).chmod(mode)

    with pytest.raises(KeyProblem, match=f"chmod 600 {path}"):
        FileKey(path).load()


def test_a_stricter_mode_will_do(path: Path) -> None:
    written(path).chmod(0o400)

    assert FileKey(path).load() == KEY


def test_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(written(tmp_path / "elsewhere"))

    with pytest.raises(KeyProblem, match="is a link"):
        FileKey(path).load()


def test_what_is_no_file_is_refused(path: Path) -> None:
    os.mkfifo(path, 0o600)

    with pytest.raises(KeyProblem, match="not a regular file"):
        FileKey(path).load()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(path: Path) -> None:
    os.chown(written(path), 12345, -1)

    with pytest.raises(KeyProblem, match="belongs to another user"):
        FileKey(path).load()


def test_an_empty_key_file_is_refused_and_not_made_anew(path: Path) -> None:
    written(path, "")

    for call in (FileKey(path).load, FileKey(path).make):
        with pytest.raises(KeyProblem, match="is empty"):
            call()
    assert path.read_bytes() == b""


@pytest.mark.parametrize(("mode", "is_fine"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_directory_that_others_can_write_holds_no_key(tmp_path: Path, mode: int, *, is_fine: bool) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    written(directory / "key")
    directory.chmod(mode)

    if is_fine:
        assert FileKey(directory / "key").load() == KEY
        return
    for call in (FileKey(directory / "key").load, FileKey(directory / "other").make):
        with pytest.raises(KeyProblem, match="chmod go-w"):
            call()
    assert [one.name for one in directory.iterdir()] == ["key"]


def test_a_key_file_is_never_written_over_another(path: Path) -> None:
    assert write_key_file(path, KEY)

    assert not write_key_file(path, bytes(32))
    assert read_key_file(path) == KEY


# --- the key that the ledger wants


def test_the_key_that_is_wanted_is_found_under_every_name_that_it_may_have(tmp_path: Path) -> None:
    keys = [secrets.token_bytes(32) for _ in range(4)]
    names = [fingerprint(key) for key in keys]
    places = ["key", ".work.db.key", f"key.{names[2]}.old", f"key.{names[3]}"]
    for place, key in zip(places, keys, strict=True):
        write_key_file(tmp_path / place, key)

    outer = FileKey(tmp_path / "key", also=tmp_path / ".work.db.key", is_reader=True)

    other = FileKey(tmp_path / ".work.db.key", also=tmp_path / "key", is_reader=True)

    assert [outer.load(name) for name in names] == keys
    assert [other.load(name) for name in names] == keys
    assert outer.load("0" * 16) == outer.load() == keys[0]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(places)


def test_a_proposed_key_that_the_ledger_has_comes_to_its_place_and_the_one_before_is_kept(path: Path) -> None:
    before = FileKey(path).make()
    new = FileKey(path).propose()

    assert FileKey(path, is_reader=True).load() == before
    assert FileKey(path).load(fingerprint(new)) == new
    assert read_key_file(path) == new
    assert FileKey(path).load(fingerprint(before)) == before
    assert sorted(one.name for one in path.parent.iterdir()) == ["key", f"key.{fingerprint(before)}.old"]


def test_keys_that_come_at_once_are_all_found_afterwards(path: Path) -> None:
    keys = [secrets.token_bytes(32) for _ in range(24)]

    def bring(key: bytes) -> None:
        FileKey(path).propose(key)
        FileKey(path).adopt(fingerprint(key))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(bring, keys))

    outer = FileKey(path, is_reader=True)
    assert [outer.load(fingerprint(key)) for key in keys] == keys
    old = sorted(f"key.{fingerprint(key)}.old" for key in keys if key != read_key_file(path))
    assert sorted(one.name for one in path.parent.iterdir()) == ["key", *old]


def test_a_key_file_that_another_process_does_not_let_go_is_told(path: Path) -> None:
    FileKey(path).make()
    new = FileKey(path).propose()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(KeyProblem, match="another process is replacing"):
            FileKey(path).adopt(fingerprint(new), patience_s=0.0)
        # To look for it does not wait.
        assert FileKey(path).load(fingerprint(new)) == new


def test_a_problem_with_one_of_several_places_is_told_unless_another_has_the_key(path: Path) -> None:
    new = FileKey(path).propose()
    written(path, "nonsense")

    assert FileKey(path).load(fingerprint(new)) == new
    with pytest.raises(KeyProblem, match="does not hold a key"):
        FileKey(path).load("0" * 16)


# --- variables, commands, scripts


def test_the_variable_goes_before_the_command_and_the_command_before_the_file(path: Path) -> None:
    variable = {"HOLDFAST_KEY": KEY.hex()}

    assert isinstance(choose(variable, command=["x"], path=path), VariableKey)
    assert isinstance(choose({}, command=["x"], path=path), CommandKey)
    with pytest.raises(KeyProblem, match="the variable HOLDFAST_KEY is empty"):
        choose({"HOLDFAST_KEY": ""}, command=["x"], path=path).load()
    assert isinstance(choose({}, path=path), FileKey)
    assert choose(variable, path=path).load() == KEY


def printing(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_command_prints_the_key_and_is_asked_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    argv = printing(f"open({str(count)!r}, 'a').write('x'); print({text_of(KEY)!r})")

    assert CommandKey(argv).load() == CommandKey(argv).load() == KEY
    assert count.read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; sys.exit('first\\nno token=" + "c4n4ry" * 6 + "')", "ended with status 1: no "),
        ("print('x' * 100_000)", "printed more than 4,096 bytes"),
        ("import time; print(1, flush=True); time.sleep(60)", "did not end within 0.3 s"),
        ("import sys, time; sys.stdout.close(); sys.stderr.close(); time.sleep(60)", "did not end within"),
        ("print('a passphrase')", "does not hold a key: 32 random bytes"),
        ("", "is empty"),
    ],
)
def test_a_command_that_gives_no_key_says_why_without_a_secret(code: str, says: str) -> None:
    limit = 0.3 if "sleep" in code else 30.0

    with pytest.raises(KeyProblem) as found:
        CommandKey(printing(code), timeout_s=limit).load()

    assert says in str(found.value)
    assert "c4n4ry" not in str(found.value)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyProblem, match=r"cannot be started.*no-such-program"):
        CommandKey(["no-such-program"]).load()


def test_a_script_gives_text_or_bytes_or_a_function_that_is_called_once() -> None:
    calls = []

    def fetch() -> str:
        calls.append(1)
        return text_of(KEY)

    outer = GivenKey(fetch)

    assert outer.load() == outer.load() == GivenKey(KEY).load() == GivenKey(text_of(KEY)).load() == KEY
    assert calls == [1]
    for wrong in (b"short", 7, lambda: None):
        with pytest.raises(KeyProblem, match="argument `key`"):
            GivenKey(wrong).load()  # type: ignore[arg-type]


def test_a_function_that_fetches_no_key_says_why_without_a_secret() -> None:
    def fetch() -> str:
        raise ConnectionError("the service is away; token=" + "c4n4ry" * 6)

    with pytest.raises(KeyProblem, match="raised ConnectionError: the service is away") as found:
        GivenKey(fetch).load()

    assert "c4n4ry" not in str(found.value)


def wait_until_dead(pid: int) -> None:
    """A zombie is dead, too: init has not asked for it yet."""
    status = Path(f"/proc/{pid}/stat")
    for _ in range(2000):
        try:
            if status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.005)
    pytest.fail(f"{pid} is still there")


def test_a_command_leaves_no_process_behind(tmp_path: Path) -> None:
    left = tmp_path / "left"
    program = f"""
import os, subprocess, sys, time
quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], **quiet)
open({str(left)!r}, "w").write(str(child.pid))
print({text_of(KEY)!r})
"""

    assert CommandKey(printing(program)).load() == KEY
    wait_until_dead(int(left.read_text(encoding="utf-8")))


# --- killed anywhere


@pytest.mark.parametrize(
    ("scene", "fewest"),
    [
        ("make", 8),
        pytest.param("rekey", 20, marks=pytest.mark.slow),
        pytest.param("settle", 20, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_killed_anywhere_leaves_a_key_that_the_next_one_finds(
    quick_path: Path, scene: str, fewest: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.key_kills", scene, str(quick_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= fewest
