"""What `security check` looks for, one function for each kind of weakness; none of them changes anything."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shlex
import shutil
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast import trust
from holdfast.api.token_methods import read_page
from holdfast.cli.config import is_loopback
from holdfast.cli.invocation import Invocation
from holdfast.config import PostgresPlace, SqlitePlace, documents, in_home, read_home
from holdfast.config.files import FOLDER, Loaded, is_settings_file, load
from holdfast.config.keys import SHORT_FORMS, key_of
from holdfast.config.tls import read_certificate
from holdfast.config.token import (
    TOKEN_NAME,
    TOKEN_VARIABLE,
    read_named_token,
    read_secret,
    read_token,
    token_path,
)
from holdfast.config.token_file import OPERATOR
from holdfast.core.errors import HoldfastError, SettingsError
from holdfast.core.redaction import redact_text
from holdfast.store.locks import holder_of
from holdfast.views.security import WeaknessView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.config.sections import Config

# A token that is older than this should get another text; the operator decides.
OLD = timedelta(days=180)
# One that was not used for so long is probably not needed.
UNUSED = timedelta(days=90)
# So long before its end a certificate should have been renewed.
ENDS_SOON = timedelta(days=21)
# A proxy is one machine or one network of them.
WIDEST_PROXIES = {4: 16, 6: 48}
# Programs that start others as another user.
RAISING = frozenset({"sudo", "doas", "su", "pkexec", "run0"})
ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
ENVIRONMENT = "environment"
_MAX_BYTES = 1024**2
_CAPITAL = re.compile("[A-Z]")
# Their URLs are the one place for a topic or a token of the service, but a password may be in a file.
_URL_LISTS = frozenset({"channels.*.urls", "gateway.alert_urls"})
_PASSWORD_IN_URL = re.compile(r"://[^/?#@\s]*:[^/?#@\s]+@")
_COUNTS = "a renewed file counts without a restart"


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The machine around the home, as far as it matters here."""

    # Whose rights agents have.
    uid: int
    environ: Mapping[str, str]
    # The program itself and the packages that it imports.
    installed: list[Path]
    # Where units of systemd may lie.
    units: list[Path]

    @classmethod
    def here(cls, home: Path) -> MachineFacts:
        return cls(
            uid=_uid_of_gateway(home),
            environ=os.environ,
            installed=installed_places(),
            units=[
                Path("/etc/systemd/system/holdfast.service"),
                Path("~/.config/systemd/user/holdfast.service").expanduser(),
            ],
        )


def installed_places() -> list[Path]:
    """Code that runs with the rights of the gateway, whatever the settings say."""
    packages = [Path(sysconfig.get_paths()[name]) for name in ("purelib", "platlib")]
    return list(dict.fromkeys([Path(sys.executable), Path(__file__).parents[1], *packages]))


def look(call: Invocation, ground: MachineFacts) -> Iterator[WeaknessView]:
    """Everything that was found. One part that cannot be looked at does not hide the others."""
    home = home_of(call)
    if home.exists():
        yield from _home(home)
        yield from _private_files(call, home)
        yield from _documents(call, home, ground)
    yield from _places("path_writable", "PATH", _path_of(ground.environ), "a program of that name")
    yield from _installed(ground)
    try:
        loaded = load(home, ground.environ, {"store": call.store})
        call.settings  # noqa: B018 - it may be refused, too
    except SettingsError as error:
        why = "what these settings say about doors, tokens and agents could not be looked at"
        yield _weakness("settings_unusable", str(error), why, call.command("config", "check"))
        return
    looks: list[Callable[[Invocation, MachineFacts, Loaded], Iterator[WeaknessView]]] = [
        _doors,
        _tokens,
        _channels,
        _modules,
        _agents,
        _store,
        _units,
    ]
    for one in looks:
        yield from one(call, ground, loaded)


def home_of(call: Invocation) -> Path:
    """Also where its settings are refused."""
    return read_home(os.environ, home=call.home)


# --- the home and its files


def _home(home: Path) -> Iterator[WeaknessView]:
    why = "another user could put other settings, tokens or modules into it, or read what is there"
    problem = _untrusted(home)
    if problem is not None:
        what, remedy = problem
        yield _weakness("home_foreign", what, why, remedy)
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o055 and not mode & 0o022:
        what = f"{home} is open to others (mode {mode:04o})"
        yield _weakness("home_open", what, why, f"chmod 700 {shlex.quote(str(home))}")


def _private_files(call: Invocation, home: Path) -> Iterator[WeaknessView]:
    """Files of the home that hold secrets, whether the settings name them or not."""
    for path in (home / ENVIRONMENT, home / TOKEN_NAME, home / "key"):
        yield from _open_file(path, "it holds a secret, and other users can read it: replace the secret, too")
    try:
        place = call.settings.store
    except SettingsError:  # told of below
        return
    if isinstance(place, SqlitePlace):
        for suffix in ("", "-wal"):
            path = place.path.with_name(f"{place.path.name}{suffix}")
            yield from _open_file(path, "it holds what agents were told and what they answered")


def _open_file(path: Path, why: str) -> Iterator[WeaknessView]:
    try:
        found = path.lstat()
    except OSError:
        return
    problem = trust.why_not(path, found) if not stat.S_ISLNK(found.st_mode) else None
    if problem is not None:
        what, _, remedy = problem.rpartition(": ")
        yield _weakness("file_open", what, why, remedy)
    elif stat.S_IMODE(found.st_mode) & 0o077 and not stat.S_ISLNK(found.st_mode):
        what = f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
        yield _weakness("file_open", what, why, f"chmod 600 {shlex.quote(str(path))}")


# --- settings


def _documents(call: Invocation, home: Path, ground: MachineFacts) -> Iterator[WeaknessView]:
    token = None
    with contextlib.suppress(SettingsError):  # told of below
        # Known by its value from now on.
        token = read_token(home, ground.environ, may_make=False)
    rotate = call.command("tokens", "rotate", "NAME")
    for path in _document_paths(home):
        why = "a user who can write settings can have the gateway start any command"
        problem = _untrusted(path)
        if problem is not None:
            yield _weakness("settings_foreign", problem[0], why, problem[1])
        why = "settings are copied, shown and kept in repositories"
        for key, is_url in _secret_keys(path, token):
            if is_url:
                what = f"{key} in {path} holds a password"
                fix = "put the URLs into a private file and name it in urls_file of a channel of kind apprise"
                yield _weakness("secret_in_settings", what, why, f"{_edit(path)} # {fix}")
                continue
            fix = "name a variable or a private file there; then replace the secret, for a token with: "
            what = f"{key} in {path} holds a token or another secret"
            yield _weakness("secret_in_settings", what, why, f"{_edit(path)} # {fix}{rotate}")


def _document_paths(home: Path) -> list[Path]:
    found: list[Path] = []
    for directory in (home, home / FOLDER):
        try:
            entries = sorted(directory.iterdir())
        except OSError:
            continue
        found += [path for path in entries if is_settings_file(home, path)]
    return found


def _secret_keys(path: Path, token: str | None) -> Iterator[tuple[str, bool]]:
    """The keys whose values look like secrets, and whether it is a URL with a password; the value itself is
    never shown."""
    try:
        # Without waiting: a FIFO would keep us until another process writes into it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            text = (file.read(_MAX_BYTES) or b"").decode("utf-8", "replace")
    except OSError:
        return
    try:
        tree: Any = documents.read(path)
    except SettingsError:
        tree = {"a line": text}
    if token is not None and token in text and token not in str(tree):
        yield "a comment", False
    if path.parent.name == FOLDER and set(tree) != {path.stem}:
        tree = {path.stem: tree}
    for key, text in _texts(tree, ""):
        plain = _CAPITAL.sub(lambda sign: f"_{sign[0].lower()}", SHORT_FORMS.get(key, key))
        setting = key_of(plain)
        if setting is not None and setting.name in _URL_LISTS:
            if _PASSWORD_IN_URL.search(text):
                yield one_line(redact_text(key), 100), True
        elif (setting is None or not setting.is_secret) and redact_text(text) != text:
            yield one_line(redact_text(key), 100), False


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(one, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, key)


# --- the doors


def _doors(call: Invocation, _ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    gateway = loaded.config.gateway
    home = call.settings.home
    if not is_loopback(gateway.host) and not gateway.tls.is_on:
        what = f"gateway.host is {gateway.host}, and gateway.tls has no certificate"
        why = "tokens and answers travel unencrypted over the network"
        remedy = _setting(
            home, loaded, "gateway.host", "127.0.0.1, or set gateway.tls.cert and gateway.tls.key"
        )
        yield _weakness("bind_without_tls", what, why, remedy)
    yield from _certificate(call, loaded.config)
    for text in gateway.trusted_proxies:
        network = ipaddress.ip_network(text)
        if network.prefixlen < WIDEST_PROXIES[network.version]:
            why = "every machine in it can name any address as its own, in the audit log and for the rates"
            remedy = _setting(home, loaded, "gateway.trusted_proxies", "the addresses of your proxies alone")
            yield _weakness("proxies_wide", f"gateway.trusted_proxies has {text}", why, remedy)
    for origin in gateway.allowed_origins:
        if not origin.startswith("https://") and not _is_local(origin):
            why = "a page that came without TLS can be changed on its way, and then calls the gateway"
            remedy = _setting(home, loaded, "gateway.allowed_origins", "origins with https:// alone")
            yield _weakness("origin_plain", f"gateway.allowed_origins has {origin}", why, remedy)
    for url in gateway.alert_urls:
        if url.lower().startswith(("http://", "json://")) and not _is_local(url):
            why = "alerts, and what their URLs hold, travel unencrypted"
            remedy = _setting(home, loaded, "gateway.alert_urls", "addresses with https:// or jsons://")
            yield _weakness("alerts_plain", "gateway.alert_urls has an address without TLS", why, remedy)


def _certificate(call: Invocation, config: Config) -> Iterator[WeaknessView]:
    now = call.clock.now()
    try:
        found = read_certificate(config.gateway.tls, call.settings.home, now=now)
    except SettingsError as error:
        what, _, remedy = str(error).rpartition(": ")
        why = "the next start is refused, and clients do not accept it"
        yield _weakness("certificate_unusable", what, why, remedy)
        return
    if found is not None and found.expires_at - now < ENDS_SOON:
        what = f"the certificate of gateway.tls.cert ends at {found.expires_at:%Y-%m-%d %H:%M} UTC"
        why = "clients refuse it from then on, and so does the next start"
        yield _weakness("certificate_ends", what, why, f"renew it, for example: certbot renew; {_COUNTS}")


# --- tokens


def _tokens(call: Invocation, ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    home, config = call.settings.home, loaded.config
    if not ground.environ.get(TOKEN_VARIABLE) and (home / TOKEN_NAME).exists():
        yield from _usable(OPERATOR, lambda: read_token(home, ground.environ, may_make=False))
    for name, settings in config.tokens.items():
        yield from _usable(name, lambda: read_named_token(name, settings, home, ground.environ))  # noqa: B023 - called at once
    try:
        page = read_page(home, config, call.clock.now())
    except SettingsError as error:
        yield _unusable_token("of tokens.json", error)
        return
    now = call.clock.now()
    for one in page.tokens:
        since = one.rotated_at or one.created_at or _since(home, config, one.name, ground)
        rotate = call.command("tokens", "rotate", one.name)
        if one.source == "settings":
            rotate = _setting(home, loaded, f"tokens.{one.name}.token_file", "a file with another text")
        if since is not None and now - since > OLD:
            what = f"the token {one.name} has had its text for {(now - since).days} days"
            why = "the longer a text is in use, the more copies of it there are"
            yield _weakness("token_old", what, why, rotate)
        if one.source == "home" or one.is_expired:
            continue
        remove = call.command("tokens", "revoke", one.name)
        if one.source == "settings":
            remove = _setting(home, loaded, f"tokens.{one.name}.scopes", "nothing: remove the whole token")
        if one.expires_at is None:
            end = f"{rotate} --expires-in 90d"
            if one.source == "settings":
                end = _setting(home, loaded, f"tokens.{one.name}.expires_at", "a moment to come")
            what = f"the token {one.name} has no end"
            yield _weakness("token_endless", what, "a copy that was lost opens the doors for ever", end)
        last = one.last_used_at or since
        if last is not None and now - last > UNUSED:
            never = "was never used" if one.last_used_at is None else "was not used"
            what = f"the token {one.name} {never} in {(now - last).days} days"
            yield _weakness("token_unused", what, "an unused token can still be stolen", remove)


def _usable(name: str, read: Callable[[], object]) -> Iterator[WeaknessView]:
    try:
        read()
    except SettingsError as error:
        yield _unusable_token(name, error)


def _unusable_token(name: str, error: SettingsError) -> WeaknessView:
    what, _, remedy = str(error).rpartition(": ")
    why = "it opens nothing now, and other users may know it"
    return _weakness("token_unusable", f"the token {name}: {what}", why, remedy)


def _since(home: Path, config: Config, name: str, ground: MachineFacts) -> datetime | None:
    """When the file of a token was written; None for one in a variable."""
    if name == OPERATOR:
        path = None if ground.environ.get(TOKEN_VARIABLE) else home / TOKEN_NAME
    else:
        path = token_path(config.tokens[name], home)
    try:
        return None if path is None else datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    except OSError:
        return None


# --- channels


def _channels(call: Invocation, ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    for name, channel in loaded.config.channels.items():
        if channel.kind != "webhook":
            continue
        try:
            read_secret(name, channel, call.settings.home, ground.environ)
        except SettingsError as error:
            what, _, remedy = str(error).rpartition(": ")
            why = "without a secret that only the sender knows, any client could write to the agent"
            yield _weakness("webhook_secret", what, why, remedy)
        if channel.url is not None and channel.url.startswith("http://") and not _is_local(channel.url):
            why = "answers of the agent travel unencrypted"
            remedy = _setting(call.settings.home, loaded, f"channels.{name}.url", "an address with https://")
            yield _weakness("webhook_plain", f"channels.{name}.url has no TLS", why, remedy)


# --- code


def _modules(call: Invocation, ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    home, config = call.settings.home, loaded.config
    named = [str(in_home(home, one, key="gateway.python_path")) for one in config.gateway.python_path]
    yield from _places("modules_writable", "gateway.python_path", named, "a module")
    given = (ground.environ.get("PYTHONPATH") or "").split(os.pathsep)
    yield from _places("modules_writable", "PYTHONPATH", [one for one in given if one], "a module")


def _path_of(environ: Mapping[str, str]) -> list[str]:
    return environ["PATH"].split(os.pathsep) if "PATH" in environ else []


def _places(code: str, where: str, places: list[str], what_lies_there: str) -> Iterator[WeaknessView]:
    """Directories whose files are run; what another user can put there runs with our rights."""
    why = f"another user could put {what_lies_there} there, which then runs with the rights of the gateway"
    for place in dict.fromkeys(places):
        path = Path(place)
        if not path.is_absolute():
            what = f"{where} has {place or 'an empty part'!r}, which is the directory of each start"
            yield _weakness(code, what, why, f"take it out of {where}")
            continue
        problem = _untrusted(_nearest(path))
        if problem is not None:
            yield _weakness(code, f"{where} has {path}: {problem[0]}", why, problem[1])


def _nearest(path: Path) -> Path:
    """What is there of it: a user who may write there may make the rest."""
    while not os.path.lexists(path) and path.parent != path:
        path = path.parent
    return path


def _installed(ground: MachineFacts) -> Iterator[WeaknessView]:
    why = "another user could change the program that runs with the rights of the gateway"
    for place in ground.installed:
        problem = _untrusted(place)
        if problem is not None:
            yield _weakness("code_writable", problem[0], why, problem[1])


# --- agents


def _agents(call: Invocation, ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    home, config = call.settings.home, loaded.config
    if ground.uid == 0 and (config.agents or config.tasks):
        who = ", ".join([*config.agents, *config.tasks][:5])
        yield _weakness(
            "agent_as_root",
            f"the gateway runs as root, and so does what it starts ({one_line(who, 200)})",
            "a model that is talked into a command can do anything to this machine",
            f"useradd --system --user-group holdfast && chown -R holdfast: {shlex.quote(str(home))} && "
            f"{call.command('gateway', 'unit', '--user', 'holdfast')} > /etc/systemd/system/holdfast.service",
        )
    for name, agent in config.agents.items():
        if agent.command and _raises(agent.command[0], ground.environ):
            yield _weakness(
                "agent_as_root",
                f"agents.{name}.command begins with {one_line(agent.command[0], 100)}, which runs as root",
                "a model that is talked into a command can do anything to this machine",
                _setting(home, loaded, f"agents.{name}.command", "the program itself, for a user of its own"),
            )


def _raises(program: str, environ: Mapping[str, str]) -> bool:
    if Path(program).name in RAISING:
        return True
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        return False
    status = Path(found).stat()
    return status.st_uid == 0 and bool(status.st_mode & stat.S_ISUID)


def _uid_of_gateway(home: Path) -> int:
    """Of the process that holds the home, where the kernel tells it; else ours."""
    try:
        holder = holder_of(home)
        if holder is not None:
            return Path(f"/proc/{holder}").stat().st_uid
    except (HoldfastError, OSError):
        pass
    return os.geteuid()


# --- the ledger


def _store(call: Invocation, _ground: MachineFacts, loaded: Loaded) -> Iterator[WeaknessView]:
    home, config = call.settings.home, loaded.config
    if call.settings.seal == "never":
        what = "store.seal is never: secrets in values of programs are stored readable"
        why = "backups, dumps and every account that can read the database have them, too"
        yield _weakness("seal_never", what, why, _setting(home, loaded, "store.seal", '"secrets"'))
    place = call.settings.store
    if not isinstance(place, PostgresPlace):
        return
    parts = urlsplit(place.url)
    asked = parse_qs(parts.query)
    host = parts.hostname or (asked.get("host") or [""])[0]
    is_near = not host or host.startswith("/") or is_loopback(host)
    if not is_near and (asked.get("sslmode") or ["prefer"])[-1] not in ENCRYPTED:
        what = f"the database at {one_line(host, 200)} may be spoken to without TLS"
        why = "everything that the ledger holds, and its password, travel to it"
        remedy = _setting(home, loaded, "store.url", "the same with ?sslmode=verify-full at its end")
        yield _weakness("store_plain", what, why, remedy)
    if (config.store.url or "") == place.url and place.shown != place.url:
        yield _weakness(
            "password_in_settings",
            "store.url in the settings holds the password of the database",
            "settings are copied, shown and kept in repositories",
            f"umask 077 && {_edit(home / ENVIRONMENT)} # HOLDFAST_STORE=…; take store.url out elsewhere",
        )


# --- units of systemd


def _units(call: Invocation, ground: MachineFacts, _loaded: Loaded) -> Iterator[WeaknessView]:
    home = call.settings.home
    for path in ground.units:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        given = _environment_of(lines)
        if given.get("HOLDFAST_HOME") != str(home):
            continue
        problem = _untrusted(path)
        if problem is not None:
            why = "another user could have the unit start any program"
            yield _weakness("unit_foreign", problem[0], why, problem[1])
        yield from _places("path_writable", f"PATH in {path}", _path_of(given), "a program of that name")
        if "NoNewPrivileges=yes" not in [line.strip() for line in lines]:
            where = shlex.quote(str(path))
            why = "what agents start may use setuid programs, and write wherever the gateway's user may"
            remedy = f"{call.command('gateway', 'unit')} > {where} && systemctl daemon-reload"
            yield _weakness("unit_soft", f"{path} has none of the limits of `gateway unit`", why, remedy)


def _environment_of(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, sign, value = line.strip().partition("=")
        if name == "Environment" and sign:
            try:
                words = shlex.split(value)
            except ValueError:
                continue
            found |= {word.partition("=")[0]: word.partition("=")[2].replace("%%", "%") for word in words}
    return found


# --- what they share


def _untrusted(path: Path) -> tuple[str, str] | None:
    """What is wrong with its owner or mode, or with those above it, and the command; None if it is fine."""
    try:
        problem = trust.why_not_trusted(path)
    except OSError:
        return None
    if problem is None:
        return None
    what, _, remedy = problem.rpartition(": ")
    return what, remedy.partition(", and ")[0].partition(" if you trust it")[0]


def _setting(home: Path, loaded: Loaded, key: str, value: str) -> str:
    """Opens the document that sets it, with what to write there."""
    source = Path(loaded.source_of(key))
    path = (
        source if source in loaded.paths else documents.find(home, documents.MAIN) or home / "holdfast.toml"
    )
    return f"{_edit(path)} # {key} = {value}"


def _edit(path: Path) -> str:
    return f"${{EDITOR:-vi}} {shlex.quote(str(path))}"


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _weakness(code: str, what: str, why: str, remedy: str) -> WeaknessView:
    return WeaknessView(
        code=code, what=one_line(redact_text(what), 1000), why=why, remedy=one_line(remedy, 1000)
    )
