"""Applies changed settings to a running gateway, and reports those that cannot be used."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.app.secrets import declared_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.alerts.watch import AlertWatch
    from holdfast.app.startup import Startup
    from holdfast.config.sections import Config
    from holdfast.delivery.outbox import Outbox
    from holdfast.engine.program.secrets import Secrets
    from holdfast.gateway.gateway import Gateway
    from holdfast.schedule.cron import Cron


class LiveSettings:
    """Everything in the gateway that follows a change of settings without a restart."""

    def __init__(
        self,
        gateway: Gateway,
        startup: Startup,
        *,
        secrets: Secrets,
        cron: Cron,
        alerts: AlertWatch,
        outbox: Outbox,
    ) -> None:
        self._gateway = gateway
        self._startup = startup
        self._secrets = secrets
        self._cron = cron
        self._alerts = alerts
        self._outbox = outbox
        # By where it comes from, the present problem: of the settings, the files of tokens, the certificate.
        self._problems: dict[str, str | None] = {}

    async def apply(self, changed: Config) -> None:
        """Use the changed settings from now on. Raises SettingsError, and applies nothing, if it must not."""
        from holdfast.config.keys import changed as difference

        # First, because reading may raise. A token that cannot be read opens nothing, but it does not stop
        # the other changes: a token that was removed must stop working at once.
        tokens = self._startup.tokens
        tokens.replace(
            type(tokens).read(changed, self._startup.settings.home, self._startup.environ, is_strict=False)
        )
        # Raises if the name of a schedule is in use, or its task is not known here.
        await self._cron.declare(changed.schedules)
        if changed.gateway.tls != self._gateway.config.gateway.tls:
            self._startup.certificates.replace(changed.gateway.tls)  # raises for one that cannot be used
        self._secrets.declare(declared_secrets(changed))
        applied = ", ".join(difference(self._gateway.config, changed).live)
        self._gateway.audit.note("settings.applied", why=applied)
        self._apply_alerts(changed)
        self._gateway.apply(changed)
        self._cron.release_after = timedelta(seconds=changed.cron.release_after_s)

    def _apply_alerts(self, changed: Config) -> None:
        from holdfast.app.alerts import alert_options
        from holdfast.config.sections import ALERT_CHANNEL
        from holdfast.delivery.channels import alert_channel

        if changed.gateway.alert_urls != self._gateway.config.gateway.alert_urls:
            channels = {name: one for name, one in self._outbox.channels.items() if name != ALERT_CHANNEL}
            self._outbox.channels = channels | alert_channel(changed)
        self._alerts.options = alert_options(changed)
        self._alerts.every_s = changed.upkeep.alerts_every_s
        self._alerts.look()

    def note_sources(self, sources: Mapping[str, str]) -> None:
        """Where the settings in effect come from now."""
        self._gateway.sources = sources

    def report(self, where: str, why: str | None) -> None:
        """Record why settings from there cannot be used; None means that they can."""
        from holdfast.core.audit import AuditOutcome

        if why is not None and why != self._problems.get(where):
            self._gateway.audit.note(f"{where}.applied", outcome=AuditOutcome.REFUSED, why=why)
        self._problems[where] = why
        self._gateway.settings_refused = "; ".join(one for one in self._problems.values() if one) or None
