"""The ground as a Django app: it carries commands and system checks, no models."""

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
