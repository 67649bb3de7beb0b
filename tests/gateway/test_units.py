"""The unit and the plist: what systemd and launchd make of them."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.main import main
from holdfast.core.errors import BadInput
from holdfast.gateway.units import WATCHDOG_S, ServiceUnit, launchd_plist, systemd_unit


def service(
    *,
    command: list[str] | None = None,
    home: str = "/srv/holdfast",
    user: str | None = "ada",
    drain_timeout_s: float = 90.0,
) -> ServiceUnit:
    return ServiceUnit(
        command=command or ["/usr/bin/python3", "-m", "holdfast", "up"],
        home=home,
        user=user,
        environment={"HOLDFAST_HOME": home},
        drain_timeout_s=drain_timeout_s,
    )


def settings_of(unit: str) -> dict[str, str]:
    lines = [line for line in unit.splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


def test_the_unit_says_what_the_supervisor_needs() -> None:
    found = settings_of(systemd_unit(service()))

    assert (
        found.items()
        >= {
            "Type": "notify",
            "NotifyAccess": "main",
            "KillMode": "mixed",
            "TimeoutStopSec": "120",
            "WatchdogSec": str(WATCHDOG_S),
            "Restart": "always",
            "User": "ada",
            "WorkingDirectory": "/srv/holdfast",
            "Environment": "HOLDFAST_HOME=/srv/holdfast",
            "ExecStart": "/usr/bin/python3 -m holdfast up",
            "WantedBy": "multi-user.target",
        }.items()
    )


def test_the_time_to_stop_is_the_drain_and_thirty_seconds_never_less() -> None:
    assert settings_of(systemd_unit(service(drain_timeout_s=10.2)))["TimeoutStopSec"] == "41"


def test_a_unit_of_the_users_own_names_no_user() -> None:
    found = settings_of(systemd_unit(service(user=None)))

    assert "User" not in found
    assert found["WantedBy"] == "default.target"


def test_signs_that_mean_something_to_systemd_are_escaped() -> None:
    strange = '/srv/my $home/100%/"a"\\b'

    found = settings_of(systemd_unit(service(command=[strange, "up"], home=strange)))

    assert found["ExecStart"] == '"/srv/my $$home/100%%/\\"a\\"\\\\b" up'
    assert found["Environment"] == '"HOLDFAST_HOME=/srv/my $home/100%%/\\"a\\"\\\\b"'
    assert found["WorkingDirectory"] == '/srv/my $home/100%%/"a"\\b'


@pytest.mark.parametrize("field", ["home", "user"])
def test_a_line_cannot_be_smuggled_in(field: str) -> None:
    with pytest.raises(BadInput, match=field):
        service(**{field: "/srv\nExecStartPre=/bin/evil"})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("directory", ["/tmp", "/tmp/with space and 100%"])
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path, directory: str) -> None:
    path = tmp_path / "holdfast.service"
    command = [sys.executable, "-m", "holdfast", "up"]
    path.write_text(systemd_unit(service(command=command, home=directory, user="root")))

    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


LIMITS = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ReadWritePaths": "/srv/holdfast",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallFilter": "@system-service",
    "SystemCallErrorNumber": "EPERM",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "UMask": "0077",
}


def test_the_unit_limits_what_the_gateway_and_its_agents_can_do() -> None:
    found = settings_of(systemd_unit(service()))

    assert {name: found.get(name) for name in LIMITS} == LIMITS


def test_the_users_own_systemd_gets_the_limits_that_it_can_set() -> None:
    found = settings_of(systemd_unit(service(user=None)))

    assert found["NoNewPrivileges"] == "yes"
    assert found["SystemCallFilter"] == "@system-service"
    assert not found.keys() & {"CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "PrivateDevices"}


@pytest.mark.parametrize(
    ("place", "protect_home", "private_tmp"),
    [
        ("/srv/holdfast", "yes", "yes"),
        ("/homes/holdfast", "yes", "yes"),
        ("/home/ada/holdfast", "read-only", "yes"),
        ("/root/holdfast", "read-only", "yes"),
        ("/tmp/holdfast", "yes", "no"),
        ("/var/tmp/holdfast", "yes", "no"),
    ],
)
@pytest.mark.parametrize("what", ["home", "code", "writable"])
def test_what_the_gateway_needs_is_not_hidden_from_it(
    what: str, place: str, protect_home: str, private_tmp: str
) -> None:
    given = service(home=place) if what == "home" else service()
    if what != "home":
        given = msgspec.structs.replace(given, **{what: [place]})

    found = settings_of(systemd_unit(given))

    assert (found["ProtectHome"], found["PrivateTmp"]) == (protect_home, private_tmp)


def test_where_agents_work_can_be_written_also_if_it_is_not_there_yet() -> None:
    given = msgspec.structs.replace(service(), writable=["/srv/work", "/srv/with space/100%"])

    found = settings_of(systemd_unit(given))

    assert found["ReadWritePaths"] == '/srv/holdfast -/srv/work "-/srv/with space/100%%"'


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_a_unit_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.service"
    path.write_text(systemd_unit(service(command=[sys.executable, "up"], home="/tmp", user=None)))

    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(path)],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_rates_the_exposure_of_the_unit_as_small(tmp_path: Path) -> None:
    """Without the limits it was 9.6 of 10."""
    path = tmp_path / "holdfast.service"
    path.write_text(systemd_unit(service(command=[sys.executable, "up"], user="daemon")))
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", str(path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot rate a file")

    assert done.returncode == 0, done.stdout[-400:]


def test_the_plist_says_the_same_to_launchd() -> None:
    found = plistlib.loads(launchd_plist(service()).encode())

    assert found["ProgramArguments"] == ["/usr/bin/python3", "-m", "holdfast", "up"]
    assert (found["UserName"], found["ExitTimeOut"]) == ("ada", 120)
    assert found["EnvironmentVariables"] == {"HOLDFAST_HOME": "/srv/holdfast"}
    assert found["KeepAlive"] == {"SuccessfulExit": False}


# --- the command


def test_the_command_takes_the_home_and_its_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "holdfast.toml").write_text("[gateway.restart]\ndrain_timeout_s = 15\n")

    status = main(["--home", str(tmp_path), "gateway", "unit", "--user", "ada"])

    found = settings_of(capfd.readouterr().out)
    assert status == 0
    assert found["TimeoutStopSec"] == "45"
    assert found["ExecStart"].endswith(" -P -m holdfast up")
    assert (found["User"], found["WorkingDirectory"]) == ("ada", str(tmp_path))
    assert found["Environment"] == f"HOLDFAST_HOME={tmp_path}"


def test_the_command_lets_agents_write_where_they_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(
        "store = 'sqlite:////srv/ledger/work.db'\n"
        "[agents.a]\ncommand = ['cat']\ndirectory = '/srv/work'\n"
        "[agents.b]\ncommand = ['cat']\ndirectory = 'inside'\n"
    )

    status = main(["--home", str(home), "gateway", "unit", "--user", "ada"])

    assert status == 0
    assert settings_of(capfd.readouterr().out)["ReadWritePaths"] == f"{home} -/srv/ledger -/srv/work"


def test_a_plist_goes_to_stdout_and_where_to_put_it_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main(["gateway", "unit", "--launchd", "--user-unit", "--home", str(tmp_path)])

    out, err = capfd.readouterr()
    assert status == 0
    assert plistlib.loads(out.encode())["Label"] == "holdfast.gateway"
    assert "~/Library/LaunchAgents" in err


def test_a_password_does_not_get_into_a_unit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://ada:hunter22@db/holdfast"

    status = main(["gateway", "unit", "--home", str(tmp_path), "--store", url])

    out, err = capfd.readouterr()
    assert status == 0
    assert "hunter22" not in out + err
    assert "HOLDFAST_STORE" in err


def test_a_store_without_a_password_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://ada@db/holdfast"

    main(["gateway", "unit", "--home", str(tmp_path), "--store", url])

    assert f"Environment=HOLDFAST_STORE={url}\n" in capfd.readouterr().out
