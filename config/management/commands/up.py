"""Entry of `manage.py up` in Django's list of commands; see `config.supervisor.listed`."""

from __future__ import annotations

from config.supervisor.listed import ListedCommand
from config.supervisor.options import HELP


class Command(ListedCommand):
    name = "up"
    help = HELP[name]
