"""The ground as a Django app: it carries commands, system checks and the limits of web, no models."""

from __future__ import annotations

from django.apps import AppConfig


class GroundConfig(AppConfig):
    """Makes sure the Celery application exists wherever a task may be sent from."""

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
