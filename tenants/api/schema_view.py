"""`/api/schema/`, made once per process: drawing up the document takes seconds of CPU, and anybody may ask for it."""

from __future__ import annotations

import threading
from typing import Any

from django.http import HttpResponse
from django.utils import translation
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_lock = threading.Lock()
# (format, language) -> the document. Both are closed sets: renderers of the view, languages of the settings.
_kept: dict[tuple[str, str], bytes] = {}


class SchemaView(SpectacularAPIView):
    """The OpenAPI document as YAML or JSON (`Accept` or `?format=json`)."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        key = (renderer.format, translation.get_language() or "")
        with _lock:  # who asks at the same moment waits for the one document instead of making another
            body = _kept.get(key)
            if body is None:
                made = super().get(request, *args, **kwargs)
                body = _kept[key] = renderer.render(made.data, request.accepted_media_type, {})
        name = f'inline; filename="penstock.{"json" if "json" in renderer.format else "yaml"}"'
        return HttpResponse(body, content_type=renderer.media_type, headers={"Content-Disposition": name})
