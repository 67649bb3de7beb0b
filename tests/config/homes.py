"""A home with documents of settings in it, and one set of settings that uses every key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from holdfast.config.files import camel

# Every key that may be set, each with a value that is not its default.
EVERY_KEY: dict[str, Any] = {
    "store": {
        "url": "sqlite:///other.db",
        "seal": "all",
        "key_command": ["kms", "decrypt", "holdfast"],
        "keep_results": 4096,
    },
    "tasks": ["campaign.tasks", "research:study"],
    "gateway": {
        "host": "::1",
        "port": 4700,
        "allowed_hosts": ["holdfast.example", "[::1]:4700"],
        "allowed_origins": ["https://holdfast.example"],
        "trusted_proxies": ["10.0.0.5", "fd00::/64"],
        "rate_limit_per_s": 10.5,
        "max_body_bytes": 4096,
        "capacity": 7,
        "alert_urls": ["https://alerts.example/holdfast"],
        "alert_after_s": 5.0,
        "owner": "ada",
        "python_path": ["modules"],
        "tls": {"cert": "tls/cert.pem", "key": "tls/key.pem"},
        "restart": {
            "session_recovery": False,
            "cron_retry_on_interrupt": False,
            "readiness_gate": False,
            "readiness_gate_threshold": 3,
            "drain_queue_messages": False,
            "manifest_path": "manifests/last.json",
            "drain_timeout_s": 12.5,
            "max_attempts_without_progress": 9,
            "resume_concurrency": 16,
        },
    },
    "upkeep": {
        "sweep_every_s": 30.0,
        "lost_after_s": 600.0,
        "keep_days": {"cron": 7.0},
        "alerts_every_s": 5.0,
    },
    "cron": {
        "max_per_agent": 3,
        "min_agent_interval_s": 60.0,
        "max_retries": 2,
        "release_after_s": 600.0,
    },
    "wakes": {
        "smart_wake": "always",
        "run_timeout_s": 300.0,
        "stop_before": 0.2,
        "on_above": 0.5,
        "chunk_s": 60.0,
        "delay_min_s": 100.0,
        "delay_max_s": 700.0,
    },
    "agents": {
        "main": {
            "command": ["claude", "-p"],
            "stdin": "json",
            "run_timeout_s": 30.0,
            "done_files": ["report.md"],
            "done_command": ["pytest", "-q"],
            "timeout_s": 60.0,
            "directory": "work",
            "env": {"ANTHROPIC_API_KEY": "KEY_OF_MAIN"},
            "session": "lobby",
        },
        "sage": {"callable": "garden.sage:answer"},
        "Scout_2": {"pydantic_ai": "garden.scout:agent"},
    },
    "schedules": {
        "pulse": {
            "cron": "0 3 * * mon-fri",
            "tz": "Europe/Berlin",
            "agent": "sage",
            "session": "nights",
            "prompt": "Scan the ecosystem.",
            "is_enabled": False,
        }
    },
    "channels": {
        "hook": {
            "kind": "webhook",
            "secret_env": "HOOK_SECRET",
            "url": "https://x.example/in",
            "agent": "main",
        },
        "drop": {"kind": "webhook", "secret_file": "drop.secret", "agent": "sage"},
        "mail": {"kind": "apprise", "urls": ["mailto://ada:pw@example.org"]},
    },
    "tokens": {
        "board": {"token_env": "BOARD_TOKEN"},
        "plugin": {
            "token_file": "plugin.token",
            "scopes": ["operator.read", "operator.write"],
            "owner": "plugin of ada",
            "tasks": ["buy"],
            "methods": ["ledger.create", "health"],
            "expires_at": "2030-01-31T00:00:00Z",
        },
    },
    "secrets": {"SHOP": {"env": "SHOP_KEY", "tasks": ["buy"], "agents": ["main"]}},
    "plugins": {"studio": {"owner": "agent:main:main", "is_enabled": False}},
    "workflows": {
        "release": {
            "goal": "Ship it.",
            "nodes": {
                "build": {"task": "build", "args": {"target": "x"}},
                "check": {
                    "task": "garden.checks:check",
                    "args": {"path": {"from": "build"}},
                    "needs": ["build"],
                    "goal": "Look at it.",
                    "priority": 3,
                },
            },
        }
    },
    "alerts": {
        "slow": {
            "condition": "rate_per_hour < 10 and percent < 90",
            "severity": "critical",
            "action": "notify_human + pause_campaign",
            "raise_after": "10m",
            "clear_after": "20m",
            "clear_when": "rate_per_hour > 20",
            "campaigns": ["rd-*"],
            "channels": ["mail"],
            "is_enabled": False,
        }
    },
    "policies": {
        "retention": {"cron": 9.0},
        "concurrency": {"gateway": 9, "campaign": 20, "host": 5},
        "retry": {"attempts": 3},
        "quiet_hours": {
            "start": "22:00",
            "end": "06:30",
            "tz": "Europe/Berlin",
            "let_through": ["warning", "critical"],
        },
        "approval": {"effects": ["opaque", "keyed"]},
    },
}


def in_camel(table: dict[str, Any], *, is_names: bool = False) -> dict[str, Any]:
    """The same with the spelling of seed 001: keys change, names of agents and of variables do not."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        has_names = not is_names and key in {
            "agents",
            "schedules",
            "channels",
            "tokens",
            "secrets",
            "plugins",
            "workflows",
            "nodes",
            "alerts",
        }
        inner = isinstance(value, dict) and key != "env"
        found[key if is_names else camel(key)] = in_camel(value, is_names=has_names) if inner else value
    return found


def as_toml(table: dict[str, Any], prefix: str = "") -> str:
    """Enough of TOML for settings: simple values first, then a part for each table."""
    lines = [f"{key} = {_toml_value(one)}" for key, one in table.items() if not isinstance(one, dict)]
    for key, one in table.items():
        if isinstance(one, dict):
            lines += [f"[{prefix}{key}]", as_toml(one, f"{prefix}{key}.")]
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    return msgspec.json.encode(value).decode()


WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "toml": as_toml,
    "json": lambda table: msgspec.json.encode(table).decode(),
    "yaml": lambda table: yaml.safe_dump(table),
    "yml": lambda table: yaml.safe_dump(table),
}


def write(home: Path, name: str, content: str | dict[str, Any]) -> Path:
    """A document in the home; a table is written in the form that the name asks for."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else WRITERS[path.suffix[1:]](content)
    path.write_text(text, encoding="utf-8")
    return path
