"""Endpoint `/api/schema/`, and the page `/api/docs/` that shows its document.

Documents are cached per process: generating one takes seconds of CPU, and it is public. Operators get the whole
document, others the one without routes of operators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.utils import translation
from django.utils.cache import patch_vary_headers
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from tenants import access
from tenants.actors import Actor
from tenants.api.authentication import ConsoleAuthentication, TokenAuthentication
from tenants.api.charging import ChargedView
from tenants.api.problems import exception_handler
from tenants.choices import Scope
from tenants.errors import DomainError

_lock = threading.Lock()
# (format, language, for operators) -> document. The keys are finite sets: renderers and languages of the settings.
_documents: dict[tuple[str, str, bool], bytes] = {}


class TenantSchemaGenerator(SchemaGenerator):
    """Generates the document without operations that require the scope of operators."""

    def _get_paths_and_endpoints(self) -> list[tuple[Any, ...]]:
        routes = super()._get_paths_and_endpoints()
        return [route for route in routes if not _is_for_operators(view=route[3], method=route[2])]


class SchemaView(ChargedView, SpectacularAPIView):
    """OpenAPI document as YAML or JSON (`Accept` or `?format=json`)."""

    authentication_classes = (TokenAuthentication, ConsoleAuthentication)
    is_operator = False

    def get_exception_handler(self) -> Callable[..., Any]:
        return exception_handler

    def perform_authentication(self, request: Request) -> None:
        """Determines if the caller is an operator, and charges the request. Invalid credentials are treated like
        none.
        """
        try:
            actor = request.auth
        except (DomainError, APIException):
            self._charge(request, None)
            return
        self._charge(request, actor if isinstance(actor, Actor) else None)
        self.is_operator = isinstance(actor, Actor) and access.permits(actor, Scope.OPERATOR)

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        self.generator_class = SchemaGenerator if self.is_operator else TenantSchemaGenerator
        key = (renderer.format, translation.get_language() or "", self.is_operator)
        with _lock:  # concurrent requests wait for one document instead of generating more
            body = _documents.get(key)
            if body is None:
                document = super().get(request, *args, **kwargs)
                body = _documents[key] = renderer.render(document.data, request.accepted_media_type, {})
        name = f'inline; filename="penstock.{"json" if "json" in renderer.format else "yaml"}"'
        response = HttpResponse(body, content_type=renderer.media_type, headers={"Content-Disposition": name})
        patch_vary_headers(response, ("Authorization", "Cookie"))
        if self.is_operator:
            response["Cache-Control"] = "no-store"
        return response


def _is_for_operators(view: Any, method: str) -> bool:
    declared = getattr(getattr(view, method.lower(), None), "endpoint", None)
    return declared is not None and declared.scope == Scope.OPERATOR


class DocsView(SpectacularSwaggerSplitView):
    """Renders the OpenAPI document for readers, with "Try it out".

    The start-up script is a request of its own, so that the page needs no inline script. Swagger UI's markup is
    corrected by `penstock/js/api-docs.js`, its colours by `penstock/css/api-docs.css`.
    """

    url_name = "schema"
    template_name = "api/docs.html"
