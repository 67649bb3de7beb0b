"""Sources of the outer key: a file, an environment variable, a command's output, or a script's argument."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from holdfast import trust
from holdfast.core.errors import KeyMissing, KeyProblem
from holdfast.core.patterns import compiled_late
from holdfast.core.redaction import keep_secret, redact_text
from holdfast.store.sealing import BRING, KEY_BYTES, OuterKey, fingerprint

if TYPE_CHECKING:
    import subprocess

KEY_VARIABLE: Final = "HOLDFAST_KEY"
NEW_KEY_VARIABLE: Final = "HOLDFAST_NEW_KEY"
COMMAND_TIMEOUT_S: Final = 30.0
# A command that only reads does not wait longer: it shows [sealed] instead.
READER_TIMEOUT_S: Final = 5.0
# How long to wait for another process that is replacing the same key file.
PATIENCE_S: Final = 10.0
MAX_BYTES: Final = 4096

# What a script may pass: the key as text or bytes, or a function that returns either.
GivenText: TypeAlias = str | bytes
Given: TypeAlias = GivenText | Callable[[], GivenText]

_PREFIX = "hf_key_"
_HEX = compiled_late(r"[0-9A-Fa-f]{64}")
_BASE64 = compiled_late(r"[A-Za-z0-9_+/-]{43}=?")
_MAKE_ONE = "make one with python -c 'import secrets; print(\"hf_key_\" + secrets.token_urlsafe(32))'"


# --- the text of a key


def text_of(key: bytes) -> str:
    """The key as one line of text."""
    return _PREFIX + base64.urlsafe_b64encode(key).decode().rstrip("=")


def read_text(text: str, where: str) -> bytes:
    """The key in a text. Raises KeyProblem, which never shows the text.

    Besides our own form, 32 bytes in hex or base64 are accepted, as other tools make them. A passphrase is
    refused, because it could be guessed.
    """
    text = text.strip()
    key = _decoded(text)
    if key is None:
        why = "is empty" if not text else "does not hold a key: 32 random bytes in one line"
        raise KeyProblem(f"{where} {why}; {_MAKE_ONE}")
    keep_secret(text)
    keep_secret(text_of(key))
    return key


def _decoded(text: str) -> bytes | None:
    if _HEX().fullmatch(text):
        return bytes.fromhex(text)
    text = text.removeprefix(_PREFIX)
    if not _BASE64().fullmatch(text):
        return None
    found = base64.urlsafe_b64decode(text.rstrip("=").replace("+", "-").replace("/", "_") + "=")
    return found if len(found) == KEY_BYTES else None


# --- the places


class FileKey:
    """A file for its owner alone. New and old keys are beside it, named by their fingerprints.

    `<key>.<fingerprint>` is a new key that the ledger may use already and that is not in its place yet.
    `<key>.<fingerprint>.old` is a key that was replaced: older backups need it, and so may other ledgers of
    the same home. No key that a ledger may need is ever removed.
    """

    def __init__(self, path: Path, *, also: Path | None = None, is_reader: bool = False) -> None:
        self.path = path
        # Another path where the ledger's key may be: the process that made it may have had another home.
        self._also = also
        self._is_reader = is_reader

    remedy = BRING

    @property
    def where(self) -> str:
        return f"the file {self.path}"

    def load(self, wanted: str | None = None) -> bytes | None:
        found = self.find(wanted)
        return None if found is None else found[1]

    def find(self, wanted: str | None = None) -> tuple[Path, bytes] | None:
        """The key and its path: the one with that fingerprint if it exists here."""
        problem: KeyProblem | None = None
        for place in [] if wanted is None else self._places(wanted):
            try:
                key = read_key_file(place)
            except KeyProblem as error:
                problem = problem or error
                continue
            if key is not None and fingerprint(key) == wanted:
                if place == self._beside(wanted) and not self._is_reader:
                    self._tidy(wanted)
                return place, key
        if problem is not None:
            raise problem
        key = read_key_file(self.path)
        return None if key is None else (self.path, key)

    def _places(self, wanted: str) -> list[Path]:
        paths = [self.path] if self._also is None else [self.path, self._also]
        beside = [_named(path, wanted) for path in paths]
        return [*paths, *beside, *(_old(path, wanted) for path in paths)]

    def _beside(self, name: str) -> Path:
        return _named(self.path, name)

    def make(self) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        if write_key_file(self.path, key):
            return key
        found = read_key_file(self.path)  # another process was first
        if found is None:
            raise KeyMissing(f"{self.path} was removed right after it was created; try again")
        return found

    # --- replacing the key

    def propose(self, key: bytes | None = None) -> bytes:
        """Store a new key durably beside the current one; then `adopt` or `withdraw` it."""
        key = secrets.token_bytes(KEY_BYTES) if key is None else key
        write_key_file(self._beside(fingerprint(key)), key)
        return key

    def adopt(self, name: str, *, may_replace: bool = True, patience_s: float = PATIENCE_S) -> Path | None:
        """Make the proposed key with this fingerprint the current one; returns where the old one is kept.

        If there is another key that may not be replaced, the proposed one stays beside it and is found there.
        Raises KeyProblem if the current file is not a key, or another process keeps it locked.
        """
        while True:
            with _held(self.path, patience_s) as is_there:
                if is_there:
                    return self._replace(name, may_replace=may_replace)
            if self._come(name):
                return None

    def _come(self, name: str) -> bool:
        """Move it to its place if that is empty; False when another key is there."""
        try:
            os.link(self._beside(name), self.path)
        except FileExistsError:
            return False
        except FileNotFoundError:  # another process has done it
            return True
        trust.sync_directory(self.path.parent)
        self._beside(name).unlink(missing_ok=True)
        return True

    def _replace(self, name: str, *, may_replace: bool) -> Path | None:
        present = read_key_file(self.path)
        if present is None or fingerprint(present) == name:
            self._beside(name).unlink(missing_ok=True)
            return None
        if not may_replace:
            return None
        kept = _old(self.path, fingerprint(present))
        with contextlib.suppress(FileExistsError):
            os.link(self.path, kept)
        # Sync the old key's new name before its old name goes to the new key.
        trust.sync_directory(self.path.parent)
        with contextlib.suppress(FileNotFoundError):  # another process has done it
            self._beside(name).rename(self.path)
        trust.sync_directory(self.path.parent)
        return kept

    def withdraw(self, name: str) -> None:
        """Remove a proposed key that no ledger uses and no other process knows."""
        self._beside(name).unlink(missing_ok=True)

    def _tidy(self, name: str) -> None:
        # Best effort: the key is also found where it is.
        with contextlib.suppress(KeyProblem, OSError):
            self.adopt(name, patience_s=0.0)


class VariableKey:
    """The key in an environment variable."""

    def __init__(self, environ: Mapping[str, str], name: str = KEY_VARIABLE) -> None:
        self._text = environ[name]
        self.where = f"the variable {name}"
        self.remedy = f"set {name} to that key; `holdfast store key export` prints it on a host that has it"

    def load(self, wanted: str | None = None) -> bytes:  # noqa: ARG002 - there is one key only
        return read_text(self._text, self.where)

    def make(self) -> bytes:
        return self.load()


class CommandKey:
    """The output of `store.key_command`, which asks a key management service."""

    where = "the output of store.key_command"
    remedy = "make the command print that key"

    def __init__(self, argv: Sequence[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s

    def load(self, wanted: str | None = None) -> bytes:  # noqa: ARG002 - there is one key only
        return _printed_key(self._argv, self._timeout_s)

    def make(self) -> bytes:
        return self.load()


class GivenKey:
    """The `key` argument of `holdfast.open`: text, 32 bytes, or a function that is called once."""

    where = "the argument `key`"
    remedy = "pass that key"

    def __init__(self, given: Given) -> None:
        self._given = given
        self._key: bytes | None = None

    def load(self, wanted: str | None = None) -> bytes:  # noqa: ARG002 - there is one key only
        if self._key is None:
            given = self._fetched()
            if isinstance(given, bytes) and len(given) == KEY_BYTES:
                self._key = given
                keep_secret(text_of(given))
            elif isinstance(given, (str, bytes)):
                text = given if isinstance(given, str) else given.decode("ascii", "replace")
                self._key = read_text(text, self.where)
            else:
                raise KeyProblem(f"{self.where} is neither text nor bytes nor a function that returns one")
        return self._key

    def _fetched(self) -> object:
        if not callable(self._given):
            return self._given
        try:
            return self._given()
        except Exception as error:  # the script's own function
            said = redact_text(f"{type(error).__name__}: {error}")[:200]
            raise KeyProblem(f"the function passed as `key` raised {said}") from error

    def make(self) -> bytes:
        return self.load()


def choose(
    environ: Mapping[str, str],
    *,
    command: Sequence[str] = (),
    path: Path,
    also: Path | None = None,
    is_reader: bool = False,
) -> OuterKey:
    """HOLDFAST_KEY, else the command, else the file. A variable that is set but empty is an error: creating a
    key file instead would hide that the key did not arrive."""
    if KEY_VARIABLE in environ:
        return VariableKey(environ)
    if command:
        return CommandKey(command, timeout_s=READER_TIMEOUT_S if is_reader else COMMAND_TIMEOUT_S)
    return FileKey(path, also=also, is_reader=is_reader)


# --- files


def read_key_file(path: Path) -> bytes | None:
    """The key in a file that is ours and that no other user can read; None when there is no file."""
    try:
        # Open first, then check the open file: between two lookups of a name the file may be replaced.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise KeyProblem(f"{path} is a link; put the key file itself there") from error
        raise KeyProblem(f"{path} cannot be read: {_why(error)}; run this as its owner") from error
    try:
        _check_file(path, os.fstat(file))
        content = os.read(file, MAX_BYTES + 1)
    finally:
        os.close(file)
    return read_text(content[: MAX_BYTES + 1].decode("ascii", "replace"), f"the file {path}")


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyProblem(f"{path} is not a regular file; put the key file there")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise KeyProblem(
            f"{path} is open to others (mode {mode:04o}): chmod 600 {path}; then, if another user may have "
            "read it, `holdfast store rekey`"
        )
    problem = trust.why_not_trusted(path, opened=found)
    if problem is not None:
        raise KeyProblem(f"{problem}; or keep the key in {KEY_VARIABLE}")


def _check_directory(path: Path) -> None:
    """Raises KeyProblem if another user can write there, and so replace the key."""
    # In a sticky directory such as /tmp no other user can replace a file of ours.
    problem = trust.why_not_trusted(path, is_parent=True)
    if problem is not None:
        raise KeyProblem(f"the key is not safe there: {problem}; or keep the key in {KEY_VARIABLE}")


def write_key_file(path: Path, key: bytes) -> bool:
    """Write the file atomically and durably, never over another file: False if there is one."""
    try:
        # The home of a script on PostgreSQL may not exist yet.
        trust.make_private_directory(path.parent)
        _check_directory(path.parent)
        return trust.create_private_file(path, f"{text_of(key)}\n".encode())
    except OSError as error:
        raise KeyProblem(
            f"the key file {path} cannot be written: {_why(error)}; check its directory, or set "
            f"{KEY_VARIABLE}"
        ) from error


def _named(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}")


def _old(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}.old")


@contextlib.contextmanager
def _held(path: Path, patience_s: float) -> Iterator[bool]:
    """Lock the key file against other processes that replace it; False when there is no file.

    The lock is on the file itself, because the gateway locks its directory. It ends with the process.
    """
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        except OSError as error:
            raise KeyProblem(f"{path} cannot be replaced: {_why(error)}; check what is there") from error
        try:
            _lock(file, path, patience_s)
            if _is_still(path, os.fstat(file)):  # otherwise it has been replaced meanwhile
                yield True
                return
        finally:
            os.close(file)


def _lock(file: int, path: Path, patience_s: float) -> None:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                raise KeyProblem(
                    f"another process is replacing {path}; wait for it, then try again"
                ) from None
            time.sleep(0.01)
        else:
            return


def _is_still(path: Path, found: os.stat_result) -> bool:
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def _why(error: OSError) -> str:
    return str(error.strerror or error).lower()


# --- commands


@cache
def _printed_key(argv: tuple[str, ...], timeout_s: float) -> bytes:
    """Run once per process and cached; a failure is not cached."""
    return read_text(_output_of(argv, timeout_s), CommandKey.where)


def _output_of(argv: tuple[str, ...], timeout_s: float) -> str:
    from subprocess import DEVNULL, PIPE, Popen

    try:
        process = Popen(  # noqa: S603 - the operator's own command, without a shell
            argv,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise KeyProblem(
            f"store.key_command cannot be started: {_why(error)}; check {argv[0]!r:.200}"
        ) from error
    with process:
        try:
            said, complained = _read_both(process, timeout_s)
        finally:
            _end(process)
    if process.returncode != 0:
        lines = complained.decode("utf-8", "replace").strip().splitlines()
        last = f": {redact_text(lines[-1])[:200]}" if lines else ""
        _refuse(f"it ended with status {process.returncode}{last}")
    return said.decode("utf-8", "replace")


def _read_both(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bytes]:
    """Its standard output, and the end of its standard error. Raises KeyProblem if it prints too much or
    takes too long."""
    import selectors
    from subprocess import TimeoutExpired

    assert process.stdout is not None
    assert process.stderr is not None
    outs = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    printing = process.stdout.fileno()
    give_up_at = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for number in outs:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, give_up_at - time.monotonic()))
            if not ready:
                _refuse(f"it did not end within {timeout_s:g} s")
            for one, _ in ready:
                found = os.read(one.fd, MAX_BYTES)
                if not found:
                    selector.unregister(one.fd)
                outs[one.fd] = (
                    outs[one.fd] + found if one.fd == printing else (outs[one.fd] + found)[-MAX_BYTES:]
                )
                if len(outs[printing]) > MAX_BYTES:
                    _refuse(f"it printed more than {MAX_BYTES:,} bytes")
    said, complained = outs.values()
    try:
        process.wait(max(0.0, give_up_at - time.monotonic()))
    except TimeoutExpired:
        _refuse(f"it did not end within {timeout_s:g} s")
    return said, complained


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole session: the command may have left other processes in it."""
    import signal

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _refuse(why: str) -> NoReturn:
    raise KeyProblem(f"store.key_command gave no key: {why}; run it by hand as this user")


__all__ = [
    "KEY_VARIABLE",
    "NEW_KEY_VARIABLE",
    "CommandKey",
    "FileKey",
    "Given",
    "GivenKey",
    "VariableKey",
    "choose",
    "read_key_file",
    "read_text",
    "text_of",
    "write_key_file",
]
