"""REST API of the schemas by which a topic's messages are shown, and of their masked fields."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api.topics import DATA_PLANE_ERRORS
from instances.choices import MessagePart, SchemaFormat, SchemaFraming
from instances.messages import limits, value_paths
from instances.messages.masks import Mask
from instances.messages.schemas import limits as schema_limits
from instances.messages.schemas.sources import SCHEMA_ID_MAX
from instances.topic_models import ANY_SCHEMA_ID, TopicSchema
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import Choice, Integer, StrictSerializer, Text
from tenants.choices import Scope

SCHEMA_PARTS = (MessagePart.KEY.value, MessagePart.VALUE.value)


class SchemaIn(StrictSerializer):
    part = Choice(choices=SCHEMA_PARTS)
    format = Choice(choices=SchemaFormat.values)
    framing = Choice(
        required=False,
        choices=SchemaFraming.values,
        default=SchemaFraming.CONFLUENT.value,
        help_text="`confluent`: a zero byte and the id of a schema stand before the value, as Confluent's serializers "
        "write it. `plain`: the value alone.",
    )
    schema_id = Integer(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=SCHEMA_ID_MAX,
        help_text="Id that framed values of this schema carry. Without it the schema is for every id that has none of "
        "its own.",
    )
    message = Text(
        required=False,
        allow_blank=True,
        max_length=schema_limits.NAME_CHARS_MAX,
        help_text="Message of Protobuf that unframed values have; the first one of the file without it. Framed values "
        "say which message they are.",
    )
    schema = Text(
        max_length=schema_limits.SCHEMA_CHARS_MAX,
        help_text="A schema of Avro as JSON, the text of a `.proto` file, or a descriptor set "
        "(`protoc --include_imports -o out.pb`) in base64.",
    )


class SchemaOut(serializers.Serializer):
    """A schema by which keys or values of a topic are shown."""

    id = serializers.CharField()
    part = serializers.ChoiceField(choices=SCHEMA_PARTS)
    format = serializers.ChoiceField(choices=SchemaFormat.values)
    framing = serializers.ChoiceField(choices=SchemaFraming.values)
    schema_id = serializers.SerializerMethodField(help_text="null: every id that has no schema of its own.")
    message = serializers.CharField(help_text="Empty: the first message of the file.")
    schema = serializers.CharField(source="text")
    created_at = serializers.DateTimeField()

    def get_schema_id(self, row: TopicSchema) -> int | None:
        return None if row.schema_id == ANY_SCHEMA_ID else row.schema_id


class MaskIn(StrictSerializer):
    part = Choice(choices=MessagePart.values)
    path = Text(
        max_length=limits.MASK_CHARS_MAX,
        help_text="Path of the field: `.card.number`, `.items[].price`, or `.` for all of it; of a header `.name`.",
    )

    def validate_path(self, text: str) -> str:
        try:
            path = str(value_paths.parse(text))
        except value_paths.WrongPath as error:
            raise serializers.ValidationError(str(error)) from None
        if len(path) > limits.MASK_CHARS_MAX:
            raise serializers.ValidationError(f"At most {limits.MASK_CHARS_MAX} characters.")
        return path


class MasksIn(StrictSerializer):
    masks = serializers.ListField(child=MaskIn(), max_length=limits.MASKS_PER_TOPIC_MAX)


class MaskOut(serializers.Serializer):
    """A field that is hidden from roles without `messages:unmask`."""

    part = serializers.ChoiceField(choices=MessagePart.values)
    path = serializers.CharField()


class MasksOut(serializers.Serializer):
    masks = MaskOut(many=True)


class SchemaCollection(ApiView):
    tag = "Messages"

    @endpoint("list_topic_schemas", Scope.TOPICS_READ, page_item=SchemaOut)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """List the schemas by which keys and values of a topic are shown, by id."""
        rows = services.schemas_of(access.instance(self.actor, instance_id), name)
        return self.page_items(rows, SchemaOut, key=lambda row: row.pk)

    @endpoint(
        "add_topic_schema", Scope.TOPICS_WRITE, body=SchemaIn, returns=SchemaOut, status=201, errors=DATA_PLANE_ERRORS
    )
    def post(self, request: Request, instance_id: str, name: str) -> Response:
        """Add a schema of a topic's keys or values.

        On a topic with masks this also requires `messages:unmask`.
        """
        instance = access.instance(self.actor, instance_id)
        row = services.add_schema(acting=self.actor, instance=instance, topic=name, fields=self.body)
        location = f"{API_ROOT}/instances/{instance_id}/topics/{name}/schemas/{row.pk}"
        return self.one(row, SchemaOut, status=201, location=location)


class SchemaResource(ApiView):
    tag = "Messages"

    @endpoint("delete_topic_schema", Scope.TOPICS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, name: str, schema_id: str) -> Response:
        """Delete a schema of a topic: its values are shown as JSON, text or hex again."""
        instance = access.instance(self.actor, instance_id)
        services.delete_schema(acting=self.actor, instance=instance, topic=name, schema_id=schema_id)
        return self.nothing()


class MaskCollection(ApiView):
    tag = "Messages"

    @endpoint("list_topic_masks", Scope.TOPICS_READ, returns=MasksOut)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """List the fields of a topic's messages that are hidden from roles without `messages:unmask`."""
        return self._masks_response(services.masks_of(access.instance(self.actor, instance_id), name))

    @endpoint(
        "set_topic_masks", Scope.MESSAGES_UNMASK, body=MasksIn, returns=MasksOut, errors=DATA_PLANE_ERRORS
    )  # fmt: skip
    def put(self, request: Request, instance_id: str, name: str) -> Response:
        """Replace the masked fields of a topic.

        They are hidden in the console, over REST, in files and from filters. They apply to reading through Penstock
        only: a Kafka client reads what its user may read. They stay when the topic is deleted; an empty list removes
        them.
        """
        instance = access.instance(self.actor, instance_id)
        masks = [Mask(mask["part"], value_paths.parse(mask["path"])) for mask in self.body["masks"]]
        return self._masks_response(services.set_masks(acting=self.actor, instance=instance, topic=name, masks=masks))

    def _masks_response(self, rows: Any) -> Response:
        return self.one({"masks": rows}, MasksOut)
