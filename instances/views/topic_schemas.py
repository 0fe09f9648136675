"""Page of a topic's schemas of keys and values, and of its masked fields."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from instances import selectors, services
from instances.messages.reading_forms import MasksForm, SchemaForm, mask_lines
from instances.messages.schemas import limits
from instances.models import Instance
from instances.selectors import TopicView
from instances.topic_models import ANY_SCHEMA_ID
from instances.views.common import instance_page
from instances.views.topics import render_topic
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, wording

FIELD_OF_POINTER = {f"/{name}": name for name in SchemaForm.base_fields}


@instance_page(Scope.TOPICS_READ)
@require_http_methods(["GET", "HEAD"])
def reading_page(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    """Shows schemas and masks of a topic."""
    return _page(request, instance, selectors.topic_detail(instance, name))


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def add_schema(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    topic = selectors.topic_detail(instance, name)
    form = SchemaForm(request.POST)
    if form.is_valid():
        try:
            services.add_schema(
                acting=request.actor, instance=instance, topic=name, fields=form.cleaned_data  # type: ignore[attr-defined]
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error, FIELD_OF_POINTER)
        else:
            messages.success(request, _("The schema is added. Messages are shown by it from now on."))
            return redirect("page-topic-reading", instance.pk, name)
    return _page(request, instance, topic, schema_form=form, status=422)


@instance_page(Scope.TOPICS_WRITE)
@require_POST
def delete_schema(request: HttpRequest, instance: Instance, name: str, schema_id: str) -> HttpResponse:
    """Deletes a schema after confirmation, because its text is not stored elsewhere."""
    back = reverse("page-topic-reading", args=[instance.pk, name])
    question = Question(
        title=_("Delete the schema?"),
        consequence=_("Its text goes, and messages of %(topic)s are shown without it. The messages stay.")
        % {"topic": name},
        action_label=_("Delete the schema"),
        back=back,
    )
    crumbs = [(instance.name, reverse("page-instance", args=[instance.pk])), (name, back)]
    question_page = ask_first(request, question, section="topics", crumbs=crumbs, context={"instance": instance})
    if question_page is not None:
        return question_page
    try:
        services.delete_schema(
            acting=request.actor, instance=instance, topic=name, schema_id=schema_id  # type: ignore[attr-defined]
        )  # fmt: skip
        messages.success(request, _("The schema is deleted."))
    except DomainError as error:
        if error.http_status in (401, 404):
            raise
        messages.error(request, wording(error))
    return redirect(back)


@instance_page(Scope.MESSAGES_UNMASK)
@require_POST
def set_masks(request: HttpRequest, instance: Instance, name: str) -> HttpResponse:
    topic = selectors.topic_detail(instance, name)
    form = MasksForm(request.POST)
    if form.is_valid():
        masks = form.cleaned_data["masks"]
        try:
            rows = services.set_masks(
                acting=request.actor, instance=instance, topic=name, masks=masks  # type: ignore[attr-defined]
            )  # fmt: skip
        except DomainError as error:
            add_errors(form, error)
        else:
            n = len(rows)
            messages.success(request, ngettext("%(n)s field is masked.", "%(n)s fields are masked.", n) % {"n": n})
            return redirect("page-topic-reading", instance.pk, name)
    return _page(request, instance, topic, masks_form=form, status=422)


def _page(
    request: HttpRequest,
    instance: Instance,
    topic: TopicView,
    *,
    schema_form: SchemaForm | None = None,
    masks_form: MasksForm | None = None,
    status: int = 200,
) -> HttpResponse:
    schemas, masks = services.schemas_of(instance, topic.name), services.masks_of(instance, topic.name)
    context = {
        "schemas": schemas,
        "masks": masks,
        "any_schema_id": ANY_SCHEMA_ID,
        "schemas_max": limits.SCHEMAS_PER_TOPIC_MAX,
        "is_full": len(schemas) >= limits.SCHEMAS_PER_TOPIC_MAX,
        "schema_form": schema_form or SchemaForm(),
        "masks_form": masks_form or MasksForm(initial={"masks": mask_lines(masks)}),
    }
    return render_topic(request, instance, topic, "reading", context, status=status)
