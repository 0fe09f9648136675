"""Migration of the database and compilation of translations, in the supervisor's process."""

from __future__ import annotations

from collections.abc import Callable

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from config.translations import compile_stale


def migrate(say: Callable[[str], None]) -> int:
    """Applies missing migrations and compiles outdated catalogs. Returns the number of migrations.

    Migrations are announced, because they may take minutes on large tables.
    """
    django.setup()
    compile_stale(settings.LOCALE_PATHS)
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        say(f"Applying {len(plan)} migrations to the database")
        call_command("migrate", interactive=False, verbosity=0)
    return len(plan)
