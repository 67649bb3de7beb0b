"""The unit and the plist: what systemd and launchd make of them."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.core.errors import BadInput
from holdfast.gateway.units import WATCHDOG_S, Service, launchd_plist, systemd_unit


def service(
    *,
    command: list[str] | None = None,
    home: str = "/srv/holdfast",
    user: str | None = "ada",
    drain_timeout_s: float = 90.0,
) -> Service:
    return Service(
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
