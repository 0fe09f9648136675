"""Adapter of the library for second factors: encryption of secrets, relying party of passkeys, texts.

Secrets of apps and recovery codes must be readable, so they cannot be hashed. They are encrypted with a key derived
from SECRET_KEY: a copy of the database alone does not reveal codes.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import urlsplit

from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import generate_totp_secret
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.encoding import force_bytes
from django.utils.translation import gettext as _

from tenants.models import User

PURPOSE = b"penstock.second_factor\n"


def cipher() -> MultiFernet:
    """Returns a cipher that encrypts with SECRET_KEY, and decrypts with former keys, too."""
    keys = [force_bytes(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(PURPOSE + key).digest())) for key in keys])


class SecondFactorAdapter(DefaultMFAAdapter):
    """Makes the library use our encryption, and the host of the public URL as relying party."""

    def encrypt(self, text: str) -> str:
        return cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Decrypts a secret.

        After a change of SECRET_KEY without fallback no code is valid: an operator removes the factor, and its owner
        sets up a new one. An unreadable secret is replaced by a random one.
        """
        try:
            return cipher().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            return generate_totp_secret()

    def get_totp_issuer(self) -> str:
        return "Penstock"

    def generate_authenticator_name(self, user: User, type: Any) -> str:
        number = Authenticator.objects.filter(user_id=user.pk, type=type).count() + 1
        return _("Passkey %(number)s") % {"number": number}

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Returns the relying party: the public URL's host. On loopback it is the host of the request.

        Browsers do not bind passkeys to IP addresses.
        """
        public = urlsplit(settings.PUBLIC_URL).hostname or "localhost"
        host = context.request.get_host().partition(":")[0] if settings.PUBLIC_URL_IS_LOOPBACK else public
        return {"id": host, "name": "Penstock"}

    def get_public_key_credential_user_entity(self, user: User) -> dict[str, Any]:
        return {"id": user.pk.encode(), "display_name": user.name or user.email, "name": user.email}
