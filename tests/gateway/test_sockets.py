"""What is bound, what is refused, and what the refusal says."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import HomeInUse, SettingsError
from holdfast.gateway.sockets import MAX_PATH_BYTES, SOCKET_NAME, Sockets, listen

Binds = Callable[..., Sockets]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def bind(home: Path) -> Iterator[Binds]:
    bound: list[Sockets] = []

    def call(*, at: Path = home, host: str = "127.0.0.1", port: int = 0) -> Sockets:
        bound.append(listen(at, host=host, port=port, environ={}, patience_s=0.0))
        return bound[-1]

    yield call
    for one in bound:
        one.close()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


# --- addresses


def test_port_0_is_any_free_one_and_known_afterwards(bind: Binds) -> None:
    sockets = bind(port=0)

    port = sockets.tcp[0].getsockname()[1]
    assert port > 0
    assert sockets.urls == [f"http://127.0.0.1:{port}"]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_is_shown_as_a_url_has_it(bind: Binds, host: str) -> None:
    sockets = bind(host=host)

    assert sockets.urls == [f"http://[::1]:{sockets.tcp[0].getsockname()[1]}"]


def test_all_addresses_of_a_name_have_the_same_port(bind: Binds) -> None:
    sockets = bind(host="localhost")

    assert len({one.getsockname()[1] for one in sockets.tcp}) == 1


def test_all_addresses_of_the_machine_are_shown_by_one_that_can_be_used(bind: Binds) -> None:
    assert bind(host="0.0.0.0").urls[0].startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_named_with_the_remedy(bind: Binds, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"'127.0.0.1' and {port}: another program .* --port"):
            bind(port=port)

    assert list(home.iterdir()) == []
    assert bind(port=0).urls  # the home is free again


def test_an_address_of_another_machine_is_refused(bind: Binds) -> None:
    with pytest.raises(SettingsError, match=r"192\.0\.2\.1.* no such address.*--host"):
        bind(host="192.0.2.1")


def test_an_unknown_host_is_refused(bind: Binds) -> None:
    with pytest.raises(SettingsError, match=r"'no-such-host.invalid'.*no such host"):
        bind(host="no-such-host.invalid")


def test_an_address_is_free_at_once_although_old_connections_linger(bind: Binds) -> None:
    first = bind()
    port = first.tcp[0].getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = first.tcp[0].accept()
    accepted.close()  # closed from this side first, so that the address lingers here
    client.close()
    first.close()

    second = listen(first.path.parent, host="127.0.0.1", port=port, environ={}, patience_s=0.0)

    assert second.urls == [f"http://127.0.0.1:{port}"]
    second.close()
    first.lock = os.open(os.devnull, os.O_RDONLY)  # the fixture closes the first one once more


# --- the home


def test_the_unix_socket_is_for_its_owner_alone(bind: Binds, home: Path) -> None:
    bind()

    found = (home / SOCKET_NAME).stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_the_umask_is_left_as_it_was(bind: Binds, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        bind()
        found = os.umask(0o022)
    finally:
        os.umask(before)

    assert found == 0o022


def test_a_socket_that_is_left_over_is_replaced(bind: Binds, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / SOCKET_NAME))
        dead.listen()

    bind()

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(home / SOCKET_NAME))


def test_a_home_that_another_process_holds_is_refused_with_their_pid(bind: Binds) -> None:
    bind()

    with pytest.raises(HomeInUse) as refused:
        bind()

    assert refused.value.pid == os.getpid()


def test_a_gateway_without_its_supervisor_is_waited_for_no_longer_than_asked(bind: Binds, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as orphan:
        orphan.bind(str(home / SOCKET_NAME))
        orphan.listen()

        with pytest.raises(HomeInUse):
            bind()


def test_a_home_that_others_may_write_in_is_refused_with_the_remedy(bind: Binds, home: Path) -> None:
    home.chmod(0o770)

    with pytest.raises(SettingsError, match=rf"others may write in it \(mode 0770\); chmod 700 {home}"):
        bind()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_home_of_another_user_is_refused(bind: Binds, home: Path) -> None:
    os.chown(home, 12345, -1)

    with pytest.raises(SettingsError, match=r"belongs to another user \(12345\)"):
        bind()


def test_a_home_that_is_missing_is_refused(bind: Binds, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory; choose another --home"):
        bind(at=tmp_path / "nowhere")


def test_a_home_too_deep_for_a_socket_is_refused(bind: Binds, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * MAX_PATH_BYTES)
    deep.mkdir(mode=0o700)

    with pytest.raises(SettingsError, match=r"too long for a socket's path.*shorter --home"):
        bind(at=deep)


def test_a_directory_in_the_place_of_the_socket_is_refused(bind: Binds, home: Path) -> None:
    (home / SOCKET_NAME).mkdir()

    with pytest.raises(SettingsError, match="remove what is there"):
        bind()


# --- handed over by systemd

HANDED_OVER = """
import os, sys
from pathlib import Path
from holdfast.gateway.sockets import listen
os.environ["LISTEN_PID"] = str(os.getpid() if sys.argv[2] == "ours" else 1)
sockets = listen(Path(sys.argv[1]), host="127.0.0.1", port=0, environ=os.environ, patience_s=0.0)
print(*sockets.urls, any(one.get_inheritable() for one in sockets.tcp))
"""


@pytest.mark.parametrize("whose", ["ours", "of another process"])
def test_sockets_that_systemd_opened_for_us_are_taken(home: Path, whose: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        # In the new process, the first descriptor after the standard ones is the socket.
        done = subprocess.run(
            [sys.executable, "-c", HANDED_OVER, str(home), whose],
            env={**os.environ, "LISTEN_FDS": "1"},
            preexec_fn=lambda: os.dup2(opened.fileno(), 3),
            pass_fds=[3],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    url, is_inheritable = done.stdout.split()
    assert (url == f"http://127.0.0.1:{port}") is (whose == "ours")
    assert is_inheritable == "False"
