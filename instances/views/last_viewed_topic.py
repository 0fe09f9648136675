"""Topic that a person viewed last in each instance, stored in the session for the snippets."""

from __future__ import annotations

from django.http import HttpRequest

from instances.models import Instance

KEY = "topics_looked_at"
INSTANCES_MAX = 20


def remember_topic(request: HttpRequest, instance: Instance, name: str) -> None:
    """Stores the topic whose page is shown. A limited number of instances is stored, the latest last."""
    topics: dict[str, str] = request.session.get(KEY, {})
    if topics.get(instance.pk) == name:
        return
    others = [(pk, topic) for pk, topic in topics.items() if pk != instance.pk]
    request.session[KEY] = dict([*others, (instance.pk, name)][-INSTANCES_MAX:])


def last_viewed_topic(request: HttpRequest, instance: Instance) -> str:
    """Returns the name of the topic viewed last, which may be deleted by now; empty if there is none."""
    topics: dict[str, str] = request.session.get(KEY, {})
    return topics.get(instance.pk, "")
