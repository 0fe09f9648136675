"""REST API of the accepted token issuer of an instance (SASL OAUTHBEARER)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.models import OAuthConfiguration
from instances.oauth.limits import (
    AUDIENCE_CHARS_MAX,
    CLOCK_SKEW_S_MAX,
    DEFAULT_CLOCK_SKEW_S,
    DEFAULT_PRINCIPAL_CLAIM,
    ISSUER_CHARS_MAX,
    KEY_SET_URL_CHARS_MAX,
    PRINCIPAL_CLAIM_CHARS_MAX,
)
from instances.oauth.selectors import configuration
from tenants.api.base import ApiView, endpoint
from tenants.api.strict import Integer, StrictSerializer, Text
from tenants.choices import Scope

EXAMPLE = OpenApiExample(
    "Tokens of one issuer, with the keys at its address",
    value={
        "issuer": "https://login.example.com/",
        "audience": "kafka-orders",
        "jwks_url": "https://login.example.com/.well-known/jwks.json",
    },
    request_only=True,
)


class OAuthIn(StrictSerializer):
    """The accepted issuer, and the keys that verify its tokens: at an address, or pinned."""

    issuer = Text(max_length=ISSUER_CHARS_MAX, help_text="What tokens have as iss, to the letter.")
    audience = Text(max_length=AUDIENCE_CHARS_MAX, help_text="What tokens must have as aud, or in it.")
    jwks_url = Text(
        required=False,
        allow_null=True,
        max_length=KEY_SET_URL_CHARS_MAX,
        help_text="Where the key set is, by https and at a public address. It is fetched every few minutes.",
    )
    jwks = serializers.DictField(
        required=False, allow_null=True, help_text="The key set itself (RFC 7517), of public keys alone."
    )
    principal_claim = Text(
        required=False,
        max_length=PRINCIPAL_CLAIM_CHARS_MAX,
        default=DEFAULT_PRINCIPAL_CLAIM,
        help_text="The claim that names the user, for access rules and quotas.",
    )
    clock_skew_seconds = Integer(
        required=False,
        min_value=0,
        max_value=CLOCK_SKEW_S_MAX,
        default=DEFAULT_CLOCK_SKEW_S,
        help_text="How far the clocks of issuer and brokers may be apart.",
    )


class OAuthKeyOut(serializers.Serializer):
    kid = serializers.CharField(allow_null=True)
    algorithms = serializers.ListField(child=serializers.CharField())
    sha256 = serializers.CharField(help_text="Its thumbprint (RFC 7638), in hexadecimal.")


class OAuthOut(serializers.Serializer):
    """The issuer whose tokens clients of the instance may use."""

    issuer = serializers.CharField()
    audience = serializers.CharField()
    jwks_url = serializers.CharField(allow_null=True)
    jwks = serializers.DictField(allow_null=True, help_text="The pinned key set; null with jwks_url.")
    principal_claim = serializers.CharField()
    clock_skew_seconds = serializers.IntegerField()
    keys_in_force = OAuthKeyOut(many=True)
    keys_fetched_at = serializers.DateTimeField(allow_null=True, help_text="Null: never, or the keys are pinned.")
    keys_error = serializers.CharField(allow_null=True, help_text="Why the last attempt to fetch keys failed.")

    def to_representation(self, row: OAuthConfiguration) -> dict[str, Any]:
        keys = row.public_keys
        return super().to_representation(
            {
                "issuer": row.issuer,
                "audience": row.audience,
                "jwks_url": row.jwks_url or None,
                "jwks": None if row.jwks_url else {"keys": [key.to_jwk() for key in keys]},
                "principal_claim": row.principal_claim,
                "clock_skew_seconds": row.clock_skew_s,
                "keys_in_force": [
                    {"kid": key.id, "algorithms": key.algorithms, "sha256": key.fingerprint} for key in keys
                ],
                "keys_fetched_at": row.fetched_at,
                "keys_error": row.fetch_error or None,
            }
        )


class OAuthResource(ApiView):
    tag = "Users"

    @endpoint("get_oauth", Scope.USERS_READ, returns=OAuthOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """Read the accepted token issuer; 404 if no tokens are accepted."""
        row = configuration(access.instance(self.actor, instance_id))
        return self.one(row, OAuthOut, etag=row.etag)

    @endpoint(
        "configure_oauth",
        Scope.USERS_WRITE,
        body=OAuthIn,
        returns=OAuthOut,
        requires_if_match=True,
        errors=(409,),
        examples=(EXAMPLE,),
    )
    def put(self, request: Request, instance_id: str) -> Response:
        """Accept tokens of an issuer: OAUTHBEARER is then offered on routes with SASL.

        In force within a second. Replaces the previous configuration: another issuer, audience or claim closes
        connections that were authenticated by tokens; other keys do not.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        if "If-Match" in self.request.headers:
            self.require_match(configuration(instance).etag)
        row = services.configure_oauth(acting=self.actor, instance=instance, requested=self.body, dry_run=self.dry_run)
        return self.one(row, OAuthOut, etag=row.etag)

    @endpoint("remove_oauth", Scope.USERS_WRITE, status=204, requires_if_match=True, errors=(409,))
    def delete(self, request: Request, instance_id: str) -> Response:
        """Stop accepting tokens. Connections that were authenticated by tokens end within a second."""
        instance = access.instance(self.actor, instance_id, lock=True)
        if "If-Match" in self.request.headers:
            self.require_match(configuration(instance).etag)
        services.remove_oauth(acting=self.actor, instance=instance, dry_run=self.dry_run)
        return self.nothing()
