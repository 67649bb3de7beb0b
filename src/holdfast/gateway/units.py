"""The systemd units and the launchd plist that keep a supervisor or a worker running; pure text."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.errors import BadInput
from holdfast.gateway.crashes import SupervisorTimeouts
from holdfast.gateway.supervisor_protocol import SETTINGS_UNUSABLE

LABEL = "holdfast.gateway"
# Longer than the supervisor needs to notice a stuck gateway, to end it, to wait and to start the next one.
WATCHDOG_S = 300
# What ProtectHome and PrivateTmp hide.
_HOMES = ("/home", "/root", "/run/user")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - recognised, not used
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ServiceUnit(msgspec.Struct, frozen=True, kw_only=True):
    """What the unit keeps running, where, and as which user."""

    command: list[str]
    home: str
    # None for a unit of the user's own systemd, which cannot name a user.
    user: str | None
    environment: dict[str, str]
    drain_timeout_s: float
    # Besides the home: where the ledger and the agents write.
    writable: list[str] = []
    # Where the program and its modules lie.
    code: list[str] = []
    # Where it starts, unless that is the home: modules are named relative to it.
    directory: str | None = None

    @property
    def longest_stop_s(self) -> int:
        return -int(-(self.drain_timeout_s + SupervisorTimeouts().drain_slack_s) // 1)

    def __post_init__(self) -> None:
        texts = {"home": self.home, "user": self.user or "", "directory": self.directory or ""}
        texts["command"] = "".join(self.command)
        texts |= {"writable": "".join(self.writable), "code": "".join(self.code)}
        for name, text in {**texts, "environment": "".join(self.environment.values())}.items():
            if _CONTROL.search(text):
                raise BadInput(name, "a unit cannot hold control characters; choose another one")


def systemd_unit(service: ServiceUnit) -> str:
    """The unit, ready to be put into a file."""
    place, control = (
        ("~/.config/systemd/user", "systemctl --user")
        if service.user is None
        else ("/etc/systemd/system", "sudo systemctl")
    )
    user = "" if service.user is None else f"User={_percent(service.user)}\n"
    environment = "".join(
        f"Environment={_quoted(f'{name}={value}')}\n" for name, value in service.environment.items()
    )
    return f"""\
# Made by `holdfast gateway unit`. Put it into {place}/holdfast.service, then:
#   {control} daemon-reload && {control} enable --now holdfast
[Unit]
Description=Holdfast gateway
Wants=network-online.target
After=network-online.target
# The supervisor waits longer after each crash by itself; systemd must not give up before it.
StartLimitIntervalSec=0

[Service]
Type=notify
# Only the supervisor speaks, and it is the main process.
NotifyAccess=main
ExecStart={_command(service.command)}
ExecReload=/bin/kill -HUP $MAINPID
{user}WorkingDirectory={_percent(service.home)}
{environment}# Other variables, such as HOLDFAST_TOKEN, one a line; the file may be missing.
EnvironmentFile=-{_percent(service.home)}/environment
UMask=0077
# Only the supervisor hears SIGTERM; it tells the gateway, which drains.
KillMode=mixed
TimeoutStopSec={service.longest_stop_s}
# A gateway that crashes at its start is the supervisor's to deal with: systemd knows less about it.
TimeoutStartSec=infinity
WatchdogSec={WATCHDOG_S}
Restart=always
RestartSec=2
# 0: an operator stopped the gateway. {SETTINGS_UNUSABLE}: its settings are invalid and must be fixed first.
RestartPreventExitStatus=0 {SETTINGS_UNUSABLE}
# One agent that eats all memory must not take the others with it.
OOMPolicy=continue
{_limits(service)}
[Install]
WantedBy={"default.target" if service.user is None else "multi-user.target"}
"""


def systemd_worker_unit(service: ServiceUnit) -> str:
    """The unit of a worker, ready to be put into a file. It may be copied to every host of the fleet."""
    environment = "".join(
        f"Environment={_quoted(f'{name}={value}')}\n" for name, value in service.environment.items()
    )
    return f"""\
# Made by `holdfast worker … --unit`. Put it into /etc/systemd/system/holdfast-worker.service, then:
#   sudo systemctl daemon-reload && sudo systemctl enable --now holdfast-worker
[Unit]
Description=Holdfast worker
Wants=network-online.target
After=network-online.target
# A ledger that is away for a long time must not make systemd give up.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={_command(service.command)}
ExecReload=/bin/kill -USR1 $MAINPID
User={_percent(service.user or "")}
WorkingDirectory={_percent(service.directory or service.home)}
{environment}# Other variables, such as HOLDFAST_STORE and HOLDFAST_KEY, one a line; the file may be missing.
EnvironmentFile=-{_percent(service.home)}/environment
UMask=0077
# Only the worker hears SIGTERM, and drains; commands of its tasks come to their end.
KillMode=mixed
TimeoutStopSec={service.longest_stop_s}
TimeoutStartSec=infinity
WatchdogSec={WATCHDOG_S}
Restart=always
RestartSec=2
# 0: an operator stopped it. 2 and {SETTINGS_UNUSABLE}: a module or the settings must be fixed first.
RestartPreventExitStatus=0 2 {SETTINGS_UNUSABLE}
OOMPolicy=continue
{_limits(service, "holdfast-worker")}
[Install]
WantedBy=multi-user.target
"""


def _limits(service: ServiceUnit, name: str = "holdfast") -> str:
    """What the gateway and the commands of its agents cannot do. An operator loosens a line in a drop-in."""
    edit = "sudo systemctl edit" if service.user is not None else "systemctl --user edit"
    return f"""
# Limits of the process and of every command that its agents start. Loosen one with `{edit} {name}`;
# the guide to the gateway says which line which agent needs.
NoNewPrivileges=yes
{"" if service.user is None else _limits_of_root(service)}LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
# A call that is not allowed fails, and does not end the process.
SystemCallErrorNumber=EPERM
KeyringMode=private
"""


def _limits_of_root(service: ServiceUnit) -> str:
    """Which only the system's own systemd can set."""
    places = [service.home, *service.writable]
    needed = [*places, *service.code]
    is_in_homes = any(_is_below(place, _HOMES) for place in needed)
    is_in_tmp = any(_is_below(place, _TEMPORARY) for place in needed)
    # One that is not there yet must not keep the gateway from its start.
    paths = " ".join([_quoted(service.home), *(_quoted(f"-{place}") for place in service.writable)])
    homes = (
        "# Something that it needs lies below /home or /root; elsewhere, this could be `yes`.\n"
        "ProtectHome=read-only"
        if is_in_homes
        else "ProtectHome=yes"
    )
    temporary = (
        "# Something that it needs lies below /tmp; elsewhere, this could be `yes`.\nPrivateTmp=no"
        if is_in_tmp
        else "PrivateTmp=yes"
    )
    return f"""\
CapabilityBoundingSet=
AmbientCapabilities=
# Nothing can be written but the home, and what the settings name.
ProtectSystem=strict
ReadWritePaths={paths}
{homes}
{temporary}
PrivateDevices=yes
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RemoveIPC=yes
"""


def _is_below(place: str, roots: Sequence[str]) -> bool:
    return any(f"{place}/".startswith(f"{root}/") for root in roots)


def launchd_plist(service: ServiceUnit) -> str:
    """The same for macOS. Without a user it is an agent of the user who loads it."""
    user = {} if service.user is None else {"UserName": service.user}
    plist: Mapping[str, object] = {
        "Label": LABEL,
        "ProgramArguments": service.command,
        **user,
        "WorkingDirectory": service.home,
        "EnvironmentVariables": service.environment,
        "RunAtLoad": True,
        # Exit status 0 is a requested stop: do not start it again.
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": service.longest_stop_s,
        "Umask": 0o077,
        "ProcessType": "Standard",
        "StandardOutPath": f"{service.home}/log/gateway.log",
        "StandardErrorPath": f"{service.home}/log/gateway.log",
    }
    return plistlib.dumps(dict(plist), sort_keys=False).decode()


def _command(words: Sequence[str]) -> str:
    """Quote a command for ExecStart, where $ begins a variable."""
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def _quoted(text: str) -> str:
    text = _percent(text)
    if re.fullmatch(r"[\w@%+=:,./-]+", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _percent(text: str) -> str:
    """Double percent signs: in a unit, one begins a specifier."""
    return text.replace("%", "%%")
