"""REST API of the quickstart: topic, user, password, sample data and code in one call."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.models import TOPIC_CHARS_MAX
from instances.quickstart.limits import SAMPLE_RUN_S
from instances.users.limits import USER_NAME_BYTES_MAX
from instances.views.connecting import quickstart_code
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import StrictSerializer, Text
from tenants.choices import Scope

QUICKSTART_EXAMPLE = OpenApiExample(
    "A topic and a user of your own names", value={"topic": "orders", "user": "billing"}, request_only=True
)

PUSH_EXAMPLE = OpenApiExample("To a topic of your own", value={"topic": "orders"}, request_only=True)


class QuickstartIn(StrictSerializer):
    """Names of the topic and the user. Defaults: `orders`, and `quickstart`, with a number if that name is taken."""

    topic = Text(
        required=False,
        max_length=TOPIC_CHARS_MAX,
        help_text="Created with the instance's defaults, or used where it is there.",
    )
    user = Text(required=False, max_length=USER_NAME_BYTES_MAX, help_text="Of a user that is not there yet.")


class CodeOut(serializers.Serializer):
    """A program that produces and consumes, with the password in it."""

    language = serializers.CharField()
    needs = serializers.CharField(help_text="Command or package that brings the client library.")
    code = serializers.CharField()


class QuickstartOut(serializers.Serializer):
    """Result of a quickstart. A response repeated for the same Idempotency-Key leaves `password` and `code` out."""

    topic = serializers.CharField()
    is_topic_new = serializers.BooleanField(help_text="False for a topic that was there.")
    user = serializers.CharField(allow_null=True, help_text="Null where clients do not sign in.")
    password = serializers.CharField(allow_null=True, help_text="Shown this once.")
    bootstrap_servers = serializers.CharField()
    ca_command = serializers.CharField(
        allow_blank=True, help_text="Fetches the certificate file that the code names; empty where it names none."
    )
    samples_until = serializers.DateTimeField(
        allow_null=True,
        help_text=f"Sample data is sent until then, {SAMPLE_RUN_S} s. Null in a dry run, and while the instance or the "
        "tenant has as much of it as it may.",
    )
    code = CodeOut(many=True, allow_null=True)


class Quickstart(ApiView):
    tag = "Instances"

    @endpoint(
        "quickstart_instance",
        Scope.TOPICS_WRITE,
        body=QuickstartIn,
        returns=QuickstartOut,
        status=201,
        secret_fields=("password", "code"),
        errors=(409, 503),
        examples=(QUICKSTART_EXAMPLE,),
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Create everything that a first message needs.

        Creates a topic and a user that may produce and consume, sends sample data for a minute, and returns the user's
        password and code. Also needs the scopes `users:write`, `acls:write` and `messages:write`.
        """
        instance = access.instance(self.actor, instance_id)
        created = services.quickstart(acting=self.actor, instance=instance, dry_run=self.dry_run, **self.body)
        code = quickstart_code(instance, created)
        body = {
            "topic": created.topic,
            "is_topic_new": created.is_topic_new,
            "user": created.user,
            "password": created.secret.password if created.secret is not None and not self.dry_run else None,
            "bootstrap_servers": code.bootstrap_servers,
            "ca_command": code.ca_command,
            "samples_until": created.samples_until,
            "code": [
                {"language": snippet.choice, "needs": snippet.install, "code": snippet.code}
                for snippet in code.snippets
            ]
            if not self.dry_run
            else None,
        }
        return self.one(body, QuickstartOut, status=201)


class PushIn(StrictSerializer):
    """The topic to which the demo client sends; `orders` by default."""

    topic = Text(required=False, max_length=TOPIC_CHARS_MAX)


class PushOut(serializers.Serializer):
    """The demo client, its quota, and the approximate end of the quota."""

    client_id = serializers.CharField()
    limit_bytes_per_s = serializers.IntegerField()
    until = serializers.DateTimeField()


class PushLimit(ApiView):
    tag = "Instances"

    @endpoint(
        "push_instance_limit",
        Scope.QUOTAS_WRITE,
        body=PushIn,
        returns=PushOut,
        errors=(409, 503),
        examples=(PUSH_EXAMPLE,),
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Demonstrate a limit.

        Sets a quota for a demo client, sends three times as much for some seconds, and removes the quota. `throughput`
        and "Why am I slow?" name the rule meanwhile. About 2 MB are stored; they are not billed. Also needs the scope
        `messages:write`.
        """
        instance = access.instance(self.actor, instance_id)
        run = services.push_limit(acting=self.actor, instance=instance, dry_run=self.dry_run, **self.body)
        return self.one(run, PushOut)
