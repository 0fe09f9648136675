"""Operations of migrations that move models from one Django app to another, whose tables stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.migrations import CreateModel, DeleteModel, RunPython, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation


def moved_away(*models: str) -> Operation:
    """Returns the operation that removes models from the state of their former app, without a change of the database.

    List a model before those that it refers to.
    """
    return SeparateDatabaseAndState(state_operations=[DeleteModel(name=model) for model in models])


def moved_in(*, former_app: str, app: str, created: Sequence[CreateModel]) -> list[Operation]:
    """Returns the operations that add models, described by `created`, to the state of their present app.

    The models' content types get that app's label. Permissions refer to content types, so operators keep theirs.
    """
    names = [model.name_lower for model in created]
    return [
        SeparateDatabaseAndState(state_operations=list(created)),
        RunPython(_relabelled(names, former_app, app), _relabelled(names, app, former_app)),
    ]


def _relabelled(models: Sequence[str], before: str, after: str) -> Callable[[Any, Any], None]:
    def relabel(apps: Any, schema_editor: Any) -> None:
        rows = apps.get_model("contenttypes", "ContentType").objects.using(schema_editor.connection.alias)
        rows.filter(app_label=before, model__in=models).update(app_label=after)

    return relabel
