"""Django app of this package: commands, system checks and limits of the web server, no models."""

from __future__ import annotations

from django.apps import AppConfig


class GroundConfig(AppConfig):
    """Ensures that the Celery application exists in every process that may send a task."""

    name = "config"
    label = "ground"
    verbose_name = "Ground"

    def ready(self) -> None:
        from config import (
            celery,  # noqa: F401  (shared tasks bind to the application that exists by then)
            public_url,  # noqa: F401  (checks register themselves)
        )
        from config.web.published import LIMITS
        from tenants import limits

        limits.register(*LIMITS)
