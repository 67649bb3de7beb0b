"""What the settings say about alerts, as the service that watches them takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.alerts.actions import AlertOptions

if TYPE_CHECKING:
    from holdfast.config.sections import Config


def alert_options(config: Config) -> AlertOptions:
    return AlertOptions(
        rules=config.alert_rules,
        channels=config.alert_channels,
        quiet_hours=config.policies.quiet_hours.hours,
    )
