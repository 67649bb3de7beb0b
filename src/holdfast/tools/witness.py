"""Runs one command and records how it ended: a separate process that survives the one that started it.

It holds the lock on the command's receipt from its start to its end, so that any process can tell whether it
still runs. The command begins only after the receipt says so durably; how it ended is written atomically.
The command's output is sealed if it holds a secret. The witness also warns the command before its timeout,
and puts the checkpoint that the command has left into the receipt: both also if the gateway is gone by then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from holdfast.core.redaction import holds_secret

_CHUNK = 65536
# The most that a pipe can hold when the command has ended; more comes only from its background processes.
_LEFT_IN_A_PIPE = 1024 * 1024
# The place to which a sealed receipt is bound; its key belongs to one effect.
_PLACE = ("receipt",)
# On a full disk, retry: how often and for how long to try to write a receipt.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LOOKS_FOR_SPACE_S = 0.2
_WAITS_FOR_SPACE_S = 24 * 3600.0
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How often the witness looks whether the command has written its checkpoint anew.
_LOOKS_AT_CHECKPOINT_S = 0.5
MAX_CHECKPOINT_BYTES = 256 * 1024


class CommandWarning(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is told, before its timeout, that its time is almost over."""

    # A line on its standard input, which then stays open; or a signal to its process, and no other.
    way: Literal["stdin", "SIGUSR1"]
    after_s: float
    line: str = ""


class CommandOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where to record how it ended."""

    # The descriptor of the receipt, locked by the process that gave the order.
    started: int
    done: str
    argv: list[str]
    cwd: str | None
    env: dict[str, str | None]
    timeout_s: float | None
    grace_s: float
    max_output_bytes: int
    # What the command reads on standard input.
    stdin: str | None = None
    # Seals the receipt if it holds a secret.
    seal_key: bytes | None = None
    warning: CommandWarning | None = None
    # The file in which the command may leave a checkpoint.
    checkpoint: str | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command ended, as its receipt says."""

    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    is_stdout_cut: bool = False
    is_stderr_cut: bool = False
    has_timed_out: bool = False
    # The witness was told to stop before the command ended by itself.
    was_stopped: bool = False
    # Why the command never began; None when it did.
    problem: str | None = None
    # Whether it was warned that its time was almost over.
    was_warned: bool = False
    # The checkpoint that it left in its file; and the last complete one, if that file was cut off.
    checkpoint: str | None = None
    checkpoint_before: str | None = None


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process; its start time distinguishes it from a later one with the same pid."""

    pid: int
    # The start time in ticks since the machine booted; None where the system does not tell it.
    ticks: int | None = None


class Began(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a receipt holds from just before its command begins."""

    # The boot id of the machine: after a reboot none of these processes is left.
    boot: str | None = None
    witness: ProcessIdentity
    # The leader of the command's own process group, once it was started.
    command: ProcessIdentity | None = None


def main() -> None:
    """Read the order from standard input; ignore an incomplete one: its starter died."""
    Witness(msgspec.json.decode(sys.stdin.buffer.read(), type=CommandOrder)).attend()


class Capture:
    """Captures the output of a command: the beginning and the end, each up to half of the cap."""

    def __init__(self, pipe: IO[bytes], max_bytes: int) -> None:
        self.pipe = pipe
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> int | None:
        """Read; returns how many bytes came: 0 at the end, None when there are none now."""
        try:
            chunk = os.read(self.pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return None
        self._size += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        del self._tail[: -self._half]
        return len(chunk)

    def read_rest(self) -> None:
        read = 0
        while read < _LEFT_IN_A_PIPE and (some := self.read()):
            read += some

    @property
    def is_cut(self) -> bool:
        return self._size > len(self._head) + len(self._tail)

    @property
    def text(self) -> str:
        if not self.is_cut:
            return (self._head + self._tail).decode("utf-8", "replace")
        left_out = self._size - len(self._head) - len(self._tail)
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[… {left_out:,} bytes left out …]\n{tail}"


class CheckpointFile:
    """The file in which the command leaves its checkpoint. Its last complete content is remembered, because
    the command may be killed while it writes the file anew."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.text: str | None = None
        self.complete: str | None = None

    def look(self) -> None:
        try:
            # Never waits for a pipe, and follows no link.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            now = (found.st_ino, found.st_mtime_ns, found.st_size)
            if now == self._seen or not stat.S_ISREG(found.st_mode):
                return
            # A byte more than allowed: then the reader sees that it is too long.
            content = file.read(MAX_CHECKPOINT_BYTES + 1)
        self._seen, self.text = now, content.decode("utf-8", "replace")
        with contextlib.suppress(msgspec.DecodeError, ValueError):
            if isinstance(msgspec.json.decode(content), dict):
                self.complete = self.text


class LateInput:
    """The standard input of a command that stays open: written as fast as the command reads."""

    def __init__(self, pipe: IO[bytes], text: str) -> None:
        self.pipe = pipe
        self._left = text.encode()
        os.set_blocking(pipe.fileno(), False)

    def add(self, line: str) -> None:
        self._left += line.encode() + b"\n"

    @property
    def is_waiting(self) -> bool:
        return bool(self._left)

    def write(self) -> None:
        try:
            self._left = self._left[os.write(self.pipe.fileno(), self._left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the command has closed its input, or has ended
            self._left = b""


class Witness:
    """One command from its start to its receipt."""

    def __init__(self, order: CommandOrder) -> None:
        self._order = order
        self._has_timed_out = False
        self._was_stopped = False
        self._stops = 0
        self._kill_at: float | None = None
        self._was_warned = False
        self._checkpoint = None if order.checkpoint is None else CheckpointFile(order.checkpoint)

    def attend(self) -> None:
        with self._signals() as signals:
            self._write_started()
            try:
                command = self._start()
            except OSError as error:
                self._write_done(Done(problem=f"{error.strerror}: {error.filename or self._order.argv[0]}"))
            except (ValueError, _Stopped) as error:
                self._write_done(Done(problem=str(error)))
            else:
                self._note_command(command.pid)
                self._write_done(self._watch(command, signals))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """A descriptor that becomes readable when the command ends or this process is told to stop."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for stop in _STOPS:
            signal.signal(stop, self._note_stop)
        yield reading

    def _note_stop(self, *_: object) -> None:
        self._was_stopped = True
        self._stops += 1

    # --- the receipt

    def _write_started(self) -> None:
        receipt = self._order.started
        try:
            os.pwrite(receipt, msgspec.json.encode(Began(boot=machine_boot(), witness=seen(os.getpid()))), 0)
            os.fsync(receipt)
            sync_directory(Path(self._order.done).parent)
        except OSError as error:
            os.ftruncate(receipt, 0)  # blank again, because the command did not begin
            sys.exit(f"its receipt cannot be written: {error.strerror}")

    def _note_command(self, pid: int) -> None:
        """Record the command's process, for a cancel after this witness was killed. No fsync: it is of no
        use after a power cut."""
        began = Began(boot=machine_boot(), witness=seen(os.getpid()), command=seen(pid))
        with contextlib.suppress(OSError):
            os.pwrite(self._order.started, msgspec.json.encode(began), 0)

    def _write_done(self, done: Done) -> None:
        """Only this process knows how the command ended: on a full disk, retry until a signal comes."""
        stops, give_up_at = self._stops, time.monotonic() + _WAITS_FOR_SPACE_S
        while True:
            try:
                self._try_to_write_done(done)
            except OSError as error:
                is_over = self._stops != stops or time.monotonic() >= give_up_at
                if error.errno not in _FULL or is_over:
                    raise
                time.sleep(_LOOKS_FOR_SPACE_S)
            else:
                return

    def _try_to_write_done(self, done: Done) -> None:
        write_done(Path(self._order.done), done, self._order.seal_key)

    # --- the command

    def _start(self) -> subprocess.Popen[bytes]:
        if self._was_stopped:
            raise _Stopped("it was stopped before it began")
        order = self._order
        env = {name: value for name, value in {**os.environ, **order.env}.items() if value is not None}
        stays_open = order.warning is not None and order.warning.way == "stdin"
        with _pipe() if stays_open else _file_of(order.stdin) as stdin:
            return subprocess.Popen(  # noqa: S603 - its purpose is to run the given command
                order.argv,
                cwd=order.cwd,
                env=env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A separate group: a stop ends all of it, and this process stays to write the receipt.
                process_group=0,
            )

    def _watch(self, command: subprocess.Popen[bytes], signals: int) -> Done:
        assert command.stdout is not None
        assert command.stderr is not None
        captures = [Capture(pipe, self._order.max_output_bytes) for pipe in (command.stdout, command.stderr)]
        given = None if command.stdin is None else LateInput(command.stdin, self._order.stdin or "")
        began, timeout_s, warning = time.monotonic(), self._order.timeout_s, self._order.warning
        end_at = None if timeout_s is None else began + timeout_s
        warn_at = None if warning is None else began + warning.after_s
        with selectors.DefaultSelector() as selector:
            selector.register(signals, selectors.EVENT_READ)
            for capture in captures:
                selector.register(capture.pipe, selectors.EVENT_READ, capture)
            while command.poll() is None:
                self._warn_in_time(command, given, warn_at)
                self._stop_in_time(command, end_at)
                if self._checkpoint is not None:
                    self._checkpoint.look()
                _follow(selector, given)
                for ready, _ in selector.select(self._until_next(end_at, warn_at)):
                    if isinstance(ready.data, LateInput):
                        ready.data.write()
                    elif not isinstance(ready.data, Capture):
                        os.read(signals, _CHUNK)
                    elif ready.data.read() == 0:
                        selector.unregister(ready.fileobj)
        for capture in captures:
            # Not until end of file: a background process of the command may keep the pipe open.
            capture.read_rest()
        if self._kill_at is not None:
            _signal_group(command.pid, signal.SIGKILL)
        out, err = captures
        done = Done(
            exit_code=command.returncode,
            stdout=out.text,
            stderr=err.text,
            is_stdout_cut=out.is_cut,
            is_stderr_cut=err.is_cut,
            has_timed_out=self._has_timed_out,
            was_stopped=self._was_stopped and not self._has_timed_out and self._kill_at is not None,
            was_warned=self._was_warned,
        )
        return done if self._checkpoint is None else _with_checkpoint(done, self._checkpoint)

    def _warn_in_time(
        self, command: subprocess.Popen[bytes], given: LateInput | None, warn_at: float | None
    ) -> None:
        warning = self._order.warning
        if warning is None or warn_at is None or self._was_warned or time.monotonic() < warn_at:
            return
        self._was_warned = True
        if given is not None:
            given.add(warning.line)
        else:
            # Only to the command's own process: the signal ends every process that does not handle it.
            command.send_signal(signal.SIGUSR1)

    def _stop_in_time(self, command: subprocess.Popen[bytes], end_at: float | None) -> None:
        """Ask the command to end at its timeout or when told to stop; kill it after the grace."""
        now = time.monotonic()
        is_late = end_at is not None and now >= end_at
        if self._kill_at is None and (self._was_stopped or is_late):
            self._has_timed_out = not self._was_stopped
            self._kill_at = now + self._order.grace_s
            _signal_group(command.pid, signal.SIGTERM)
        elif self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + self._order.grace_s
            _signal_group(command.pid, signal.SIGKILL)

    def _until_next(self, end_at: float | None, warn_at: float | None) -> float | None:
        now = time.monotonic()
        due = [end_at if self._kill_at is None else self._kill_at]
        due += [None if self._was_warned else warn_at]
        due += [None if self._checkpoint is None else now + _LOOKS_AT_CHECKPOINT_S]
        left = [max(0.0, one - now) for one in due if one is not None]
        return min(left) if left else None


def _follow(selector: selectors.BaseSelector, given: LateInput | None) -> None:
    """Watch the standard input only while something is to be written to it."""
    if given is None:
        return
    is_watched = given.pipe.fileno() in selector.get_map()
    if given.is_waiting and not is_watched:
        selector.register(given.pipe, selectors.EVENT_WRITE, given)
    elif is_watched and not given.is_waiting:
        selector.unregister(given.pipe)


def _with_checkpoint(done: Done, file: CheckpointFile) -> Done:
    file.look()
    before = None if file.complete == file.text else file.complete
    return msgspec.structs.replace(done, checkpoint=file.text, checkpoint_before=before)


class _Stopped(Exception):
    """Stopped before the command began."""


def machine_boot() -> str | None:
    """The id of this boot of the machine; None where the system does not tell it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def seen(pid: int) -> ProcessIdentity:
    return ProcessIdentity(pid=pid, ticks=ticks_of(pid))


def ticks_of(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def write_done(path: Path, done: Done, seal_key: bytes | None) -> None:
    """Write the receipt atomically."""
    unfinished = path.with_suffix(".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_written(done, seal_key))
        file.flush()
        os.fsync(descriptor)
    unfinished.rename(path)
    sync_directory(path.parent)


def _written(done: Done, seal_key: bytes | None) -> bytes:
    """The encoded receipt; sealed if the command's output holds a secret."""
    encoded = msgspec.json.encode(done)
    if seal_key is None or not holds_secret(encoded):
        return encoded
    from holdfast.store.sealing import LedgerKey  # heavy, and seldom needed

    return LedgerKey(seal_key).seal(encoded, _PLACE)


def read_done(found: bytes, seal_key: bytes | None) -> Done:
    """Decode a receipt. Raises ValueError if it cannot be read."""
    if found[:1] == b"\x01":
        from holdfast.store.sealing import LedgerKey

        opened = None if seal_key is None else LedgerKey(seal_key).open(found, _PLACE)
        if opened is None:
            raise ValueError("it is sealed with a key that is not at hand")
        found = opened
    return msgspec.json.decode(found, type=Done)


@contextlib.contextmanager
def _pipe() -> Iterator[int]:
    """A standard input that stays open while the command runs."""
    yield subprocess.PIPE


@contextlib.contextmanager
def _file_of(text: str | None) -> Iterator[int | IO[bytes]]:
    """The command's standard input: an unnamed file, because a pipe blocks if the command does not read."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _signal_group(group: int, number: signal.Signals) -> None:
    # The group has ended, or (on macOS) only zombies are left in it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
