"""Requests and responses of endpoints of users and access rules."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.acls import constants
from instances.acls.limits import ACL_NAME_BYTES_MAX
from instances.acls.presets import Preset
from instances.api.watching import SilentOut
from instances.users import selectors
from instances.users.interfaces import SecretDescription, UserDescription
from instances.users.limits import USER_NAME_BYTES_MAX
from tenants.api.endpoint import PageQuery
from tenants.api.strict import Choice, Flag, Instant, StrictSerializer, Text

NEXT_PAGE = "Ask for the next page with it; null at the end."
STATES = [state.value for state in selectors.UserState]
PRINCIPAL_CHARS_MAX = ACL_NAME_BYTES_MAX + len("User:")
HOST_CHARS_MAX = 45
REASONS = (
    "superuser", "allowed_by_rule", "denied_by_rule", "not_allowed", "no_rules_allowed",
    "no_rules_denied", "cluster_needs_rule",
)  # fmt: skip


# --- requests: users --------------------------------------------------------------------------------------------------


class UserQuery(PageQuery):
    contains = Text(required=False, max_length=USER_NAME_BYTES_MAX, help_text="Part of the name.")


class DeleteUserQuery(StrictSerializer):
    for_good = Choice(
        required=False, choices=("true", "false"), default="false", help_text="`true`: it cannot be restored."
    )


class UserIn(StrictSerializer):
    """A user to create. Without `superuser` access rules decide what it may do; `rights` creates some for it."""

    name = Text(max_length=USER_NAME_BYTES_MAX, help_text="Printable characters; what a client signs in as.")
    superuser = Flag(required=False, default=False, help_text="Full access: everything in this instance.")
    rights = Choice(
        required=False,
        choices=[preset.value for preset in Preset],
        default=Preset.NOTHING.value,
        help_text="Access rules to create with it. `produce_consume`: read, write and create every topic, read in "
        "every consumer group, write with every transactional id; takes the scope `acls:write` and a closed instance.",
    )
    expires_at = Instant(required=False, allow_null=True, help_text="Never, when left out.")


class UserPatch(StrictSerializer):
    """The fields to change; fields that are not given stay."""

    superuser = Flag(required=False)
    disabled = Flag(required=False, help_text="It may not sign in, and its connections end within a second.")
    expires_at = Instant(required=False, allow_null=True, help_text="null: never.")


# --- responses: users -------------------------------------------------------------------------------------------------


class SecretOut(serializers.Serializer):
    """Description of a password of a user, without the password itself."""

    id = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Null: not since the brokers that answered have started."
    )
    mechanisms = serializers.ListField(child=serializers.CharField())

    def to_representation(self, secret: SecretDescription) -> dict[str, Any]:
        return super().to_representation(
            {
                "id": secret.id,
                "created_at": selectors.instant_of(secret.created_at_ms),
                "last_used_at": selectors.instant_of(secret.last_used_at_ms),
                "mechanisms": secret.mechanisms,
            }
        )


class UserOut(serializers.Serializer):
    """A user of an instance, as which Kafka clients sign in."""

    name = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES, help_text="Whether it may sign in.")
    superuser = serializers.BooleanField()
    disabled = serializers.BooleanField()
    expires_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Null: not since the brokers that answered have started."
    )
    connections = serializers.IntegerField(help_text="Open now, to the brokers that answered.")
    secrets = SecretOut(many=True, help_text="Its passwords, without the passwords.")

    def to_representation(self, user: UserDescription) -> dict[str, Any]:
        return super().to_representation(
            {
                "name": user.name,
                "state": selectors.state_of(user).value,
                "superuser": user.superuser,
                "disabled": user.disabled,
                "expires_at": selectors.instant_of(user.expires_at_ms),
                "created_at": selectors.instant_of(user.created_at_ms),
                "last_used_at": selectors.instant_of(user.last_used_at_ms),
                "connections": user.connections,
                "secrets": user.secrets,
            }
        )


class UserPageOut(serializers.Serializer):
    """One page of users."""

    items = UserOut(many=True)
    next_page_token = serializers.CharField(allow_null=True, help_text=NEXT_PAGE)
    silent = SilentOut(many=True, help_text="Brokers that did not answer: last use and connections are without them.")


class SecretMadeOut(serializers.Serializer):
    """A password, shown once: a repeated response and every later read leave it out."""

    id = serializers.CharField()
    password = serializers.CharField(allow_null=True, help_text="Null in a dry run and in a repeated answer.")
    mechanisms = serializers.ListField(child=serializers.CharField())


class UserMadeOut(UserOut):
    """A user that was just created, with its password."""

    secret = SecretMadeOut()

    def to_representation(self, created: dict[str, Any]) -> dict[str, Any]:
        return {**UserOut(created["user"]).data, "secret": SecretMadeOut(created["secret"]).data}


# --- access rules -----------------------------------------------------------------------------------------------------


class AclIn(StrictSerializer):
    """An access rule: a principal may, or may not, do an operation on resources, from a host."""

    principal = Text(max_length=PRINCIPAL_CHARS_MAX, help_text="`User:alice`, or `User:*` for everybody.")
    host = Text(
        max_length=HOST_CHARS_MAX, required=False, default=constants.WILDCARD, help_text="One IP address, or `*`."
    )
    resource_type = Choice(choices=tuple(constants.OPERATIONS_OF))
    resource_name = Text(
        max_length=ACL_NAME_BYTES_MAX,
        help_text="Or `*` for all of a type; of a cluster `kafka-cluster`, which is the instance.",
    )
    pattern_type = Choice(
        choices=constants.PATTERN_TYPES,
        required=False,
        default=constants.LITERAL,
        help_text="`prefixed`: names begin with it.",
    )
    operation = Choice(
        choices=constants.OPERATIONS,
        help_text="read, write, delete and alter allow describe as well; alter_configs allows describe_configs.",
    )
    permission = Choice(choices=constants.PERMISSIONS, required=False, default=constants.ALLOW, help_text="deny wins.")


class _FilterQuery(StrictSerializer):
    """A filter; rules match if they have all given values."""

    principal = Text(required=False, max_length=PRINCIPAL_CHARS_MAX)
    host = Text(required=False, max_length=HOST_CHARS_MAX)
    resource_type = Choice(required=False, choices=constants.RESOURCE_TYPES)
    resource_name = Text(required=False, max_length=ACL_NAME_BYTES_MAX)
    operation = Choice(required=False, choices=constants.OPERATIONS)
    permission = Choice(required=False, choices=constants.PERMISSIONS)


class AclQuery(_FilterQuery):
    pattern_type = Choice(
        required=False,
        choices=(*constants.PATTERN_TYPES, constants.MATCH),
        help_text="`match`, with a resource's name: every rule that has a say about it.",
    )


class AclDeletion(_FilterQuery):
    """The rules to delete: every rule with all given values, so all seven name one rule. At least one is needed."""

    pattern_type = Choice(required=False, choices=constants.PATTERN_TYPES)


class AclOut(serializers.Serializer):
    """An access rule: one entry of Kafka's access control lists."""

    principal = serializers.CharField()
    host = serializers.CharField()
    resource_type = serializers.ChoiceField(choices=constants.RESOURCE_TYPES)
    resource_name = serializers.CharField()
    pattern_type = serializers.ChoiceField(choices=constants.PATTERN_TYPES)
    operation = serializers.ChoiceField(choices=constants.OPERATIONS)
    permission = serializers.ChoiceField(choices=constants.PERMISSIONS)


class AclsDeletedOut(serializers.Serializer):
    deleted = AclOut(many=True)


class AccessQuery(StrictSerializer):
    """The question whether a principal may do an operation on a resource, connected from a host."""

    principal = Text(max_length=PRINCIPAL_CHARS_MAX, help_text="`User:alice`.")
    operation = Choice(choices=tuple(name for name in constants.OPERATIONS if name != constants.ALL))
    resource_type = Choice(choices=tuple(constants.OPERATIONS_OF))
    resource_name = Text(max_length=ACL_NAME_BYTES_MAX)
    host = Text(
        required=False, default=constants.WILDCARD, max_length=HOST_CHARS_MAX, help_text="Default: no special one."
    )


class AccessOut(serializers.Serializer):
    allowed = serializers.BooleanField()
    reason = serializers.ChoiceField(choices=REASONS)
    rule = AclOut(allow_null=True, help_text="The one that decided, where one did.")
