"""How a client signs in, in each language of the snippets. Pure texts."""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple

MECHANISM: Final = "SCRAM-SHA-512"
PLACEHOLDER_USER: Final = "your-user"
PLACEHOLDER_PASSWORD: Final = "your-password"  # noqa: S105  what stands where the reader's own goes


class LoginLines(NamedTuple):
    """What a snippet says more: `settings` of the client, and in some languages what it `needs` for them."""

    settings: str
    needs: str = ""


NOBODY: Final = LoginLines("")


class Login(NamedTuple):
    """Who signs in, over a connection that is encrypted or not."""

    username: str
    password: str
    is_encrypted: bool = False

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.is_encrypted else "SASL_PLAINTEXT"

    @property
    def jaas(self) -> str:
        """The line that Java's clients take."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f"{module} required username={_quoted(self.username)} password={_quoted(self.password)};"

    def __repr__(self) -> str:
        return f"Login({self.username})"

    def lines(self, choice: str) -> LoginLines:
        """The lines of one snippet."""
        return LINES[choice](self) if choice in LINES else NOBODY


def _quoted(text: str) -> str:
    """A string of all the languages here."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def properties(login: Login) -> str:
    """A file of settings for Java's clients and Kafka's own tools."""
    lines = (
        f"security.protocol={login.protocol}",
        f"sasl.mechanism={MECHANISM}",
        f"sasl.jaas.config={login.jaas}",
    )
    return "\n".join(lines) + "\n"


def _python(login: Login) -> LoginLines:
    return LoginLines(
        f'\n    "security.protocol": "{login.protocol}",\n    "sasl.mechanism": "{MECHANISM}",'
        f'\n    "sasl.username": {_quoted(login.username)},\n    "sasl.password": {_quoted(login.password)},'
    )


def _java(login: Login) -> LoginLines:
    return LoginLines(
        f'\n        p.put("security.protocol", "{login.protocol}");'
        f'\n        p.put("sasl.mechanism", "{MECHANISM}");'
        f'\n        p.put("sasl.jaas.config", {_quoted(login.jaas)});'
    )


def _go(login: Login) -> LoginLines:
    who = f"scram.Auth{{User: {_quoted(login.username)}, Pass: {_quoted(login.password)}}}"
    encrypted = ", kgo.DialTLS()" if login.is_encrypted else ""
    return LoginLines(
        f",\n\t\tkgo.SASL({who}.AsSha512Mechanism()){encrypted}", '\n\t"github.com/twmb/franz-go/pkg/sasl/scram"'
    )


def _node(login: Login) -> LoginLines:
    encrypted = " ssl: true," if login.is_encrypted else ""
    return LoginLines(
        f',{encrypted}\n  sasl: {{ mechanism: "{MECHANISM.lower()}", '
        f"username: {_quoted(login.username)}, password: {_quoted(login.password)} }}"
    )


def _csharp(login: Login) -> LoginLines:
    protocol = "SaslSsl" if login.is_encrypted else "SaslPlaintext"
    return LoginLines(
        f",\n    SecurityProtocol = SecurityProtocol.{protocol}, SaslMechanism = SaslMechanism.ScramSha512,"
        f"\n    SaslUsername = {_quoted(login.username)}, SaslPassword = {_quoted(login.password)}"
    )


def _kcat(login: Login) -> LoginLines:
    return LoginLines(
        f" -X security.protocol={login.protocol} -X sasl.mechanism={MECHANISM}"
        f" -X {shlex.quote(f'sasl.username={login.username}')} -X {shlex.quote(f'sasl.password={login.password}')}"
    )


def _shell(login: Login) -> LoginLines:
    return LoginLines(
        f" \\\n  --producer-property security.protocol={login.protocol}"
        f" --producer-property sasl.mechanism={MECHANISM}"
        f" \\\n  --producer-property {shlex.quote(f'sasl.jaas.config={login.jaas}')}"
    )


LINES: Final = {
    "python": _python,
    "java": _java,
    "go": _go,
    "node": _node,
    "csharp": _csharp,
    "kcat": _kcat,
    "shell": _shell,
}
