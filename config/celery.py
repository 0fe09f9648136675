"""Celery application: `celery -A config.celery worker`."""

from __future__ import annotations

import os

from celery import Celery

from config.beat import BeatWatch

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("penstock")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["worker"].add(BeatWatch)
