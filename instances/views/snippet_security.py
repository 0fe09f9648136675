"""Security settings of clients in each language of the snippets. Pure."""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple, Protocol

from instances.models import Route
from instances.routes.kinds import MTLS, WITH_SASL, WITH_TLS

MECHANISM: Final = "SCRAM-SHA-512"
PLACEHOLDER_USER: Final = "your-user"
PLACEHOLDER_PASSWORD: Final = "your-password"  # noqa: S105  shown in place of the reader's password
# Names of files in the folder in which a snippet runs.
CA_FILE: Final = "penstock-ca.pem"
CLIENT_CERTIFICATE_FILE: Final = "client.pem"
CLIENT_KEY_FILE: Final = "client.key"
# Java reads key and certificate from one file.
CLIENT_KEYSTORE_FILE: Final = "client-with-key.pem"
# Protocols by (has TLS, has a user).
PROTOCOLS: Final = {
    (False, False): "PLAINTEXT",
    (False, True): "SASL_PLAINTEXT",
    (True, False): "SSL",
    (True, True): "SASL_SSL",
}
CSHARP_PROTOCOLS: Final = {
    "PLAINTEXT": "Plaintext", "SASL_PLAINTEXT": "SaslPlaintext", "SSL": "Ssl", "SASL_SSL": "SaslSsl",
}  # fmt: skip

ASCII_MAX: Final = 0x7F

Setting = tuple[str, str]


class SnippetLines(NamedTuple):
    """Lines that security adds to a snippet: `settings` of the client, and in some languages `imports`, lines `before`
    the client, and `consumer_settings` if consumers need other settings.
    """

    settings: str = ""
    imports: tuple[str, ...] = ()
    before: str = ""
    consumer_settings: str = ""


class Login(NamedTuple):
    """Credentials of a user."""

    username: str
    password: str

    @property
    def jaas(self) -> str:
        """Value of `sasl.jaas.config` for Java's clients."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f"{module} required username={_quoted(self.username)} password={_quoted(self.password)};"

    def __repr__(self) -> str:
        return f"Login({self.username})"


class Tls(NamedTuple):
    """TLS settings of a client. `ca_url` is the address of the installation's CA certificate; empty if brokers show a
    certificate of another authority.
    """

    ca_url: str = ""
    has_client_certificate: bool = False


class ClientSecurity(NamedTuple):
    """Security settings of a client; the default has neither sign-in nor encryption."""

    login: Login | None = None
    tls: Tls | None = None

    @property
    def protocol(self) -> str:
        """Value of a Kafka client's `security.protocol`."""
        return PROTOCOLS[self.tls is not None, self.login is not None]

    @property
    def has_ca(self) -> bool:
        return self.tls is not None and bool(self.tls.ca_url)

    @property
    def has_client_certificate(self) -> bool:
        return self.tls is not None and self.tls.has_client_certificate

    @property
    def ca_command(self) -> str:
        """Shell command that fetches the CA file of the snippets; empty if they need none."""
        return f"curl -fsS {shlex.quote(self.tls.ca_url)} -o {CA_FILE}" if self.tls and self.tls.ca_url else ""

    def lines(self, choice: str) -> SnippetLines:
        """Returns the lines that security adds to the snippet `choice`; none for a client without security."""
        return SnippetLines() if self == NO_SECURITY else SNIPPET_WRITERS[choice](self)


class SnippetWriter(Protocol):
    """Function that returns the lines for the snippet in one language."""

    def __call__(self, security: ClientSecurity) -> SnippetLines: ...


NO_SECURITY: Final = ClientSecurity()


def client_security(route: Route | None, login: Login, ca_url: str) -> ClientSecurity:
    """Returns the security settings for a route, with `login` if it requires a user; none without a route."""
    if route is None:
        return NO_SECURITY
    tls = None
    if route.security in WITH_TLS:
        has_own_certificate = bool(getattr(route, "certificate", None))
        tls = Tls("" if has_own_certificate else ca_url, has_client_certificate=route.security == MTLS)
    return ClientSecurity(login if route.security in WITH_SASL else None, tls)


def _quoted(text: str) -> str:
    """Returns a string literal that is valid in all the languages of the snippets."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _librdkafka(security: ClientSecurity) -> list[Setting]:
    """Returns settings of librdkafka and of clients built on it."""
    result = [("security.protocol", security.protocol)]
    if security.has_ca:
        result.append(("ssl.ca.location", CA_FILE))
    if security.has_client_certificate:
        result += [("ssl.certificate.location", CLIENT_CERTIFICATE_FILE), ("ssl.key.location", CLIENT_KEY_FILE)]
    if security.login is not None:
        login = security.login
        result += [("sasl.mechanism", MECHANISM), ("sasl.username", login.username), ("sasl.password", login.password)]
    return result


def _java_settings(security: ClientSecurity) -> list[Setting]:
    """Returns settings of Java's clients and Kafka's own tools."""
    result = [("security.protocol", security.protocol)]
    if security.has_ca:
        result += [("ssl.truststore.type", "PEM"), ("ssl.truststore.location", CA_FILE)]
    if security.has_client_certificate:
        result += [("ssl.keystore.type", "PEM"), ("ssl.keystore.location", CLIENT_KEYSTORE_FILE)]
    if security.login is not None:
        result += [("sasl.mechanism", MECHANISM), ("sasl.jaas.config", security.login.jaas)]
    return result


def properties(security: ClientSecurity) -> str:
    """Returns a properties file for Java's clients and Kafka's own tools."""
    return "".join(f"{name}={_property(value)}\n" for name, value in _java_settings(security))


def _property(text: str) -> str:
    """Escapes a value of a Java properties file: backslashes and characters beyond ASCII."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(number) if number <= ASCII_MAX else f"\\u{number:04x}" for number in numbers)


def _python(security: ClientSecurity) -> SnippetLines:
    return SnippetLines("".join(f"\n    {_quoted(name)}: {_quoted(value)}," for name, value in _librdkafka(security)))


def _java(security: ClientSecurity) -> SnippetLines:
    lines = (f"\n        p.put({_quoted(name)}, {_quoted(value)});" for name, value in _java_settings(security))
    return SnippetLines("".join(lines))


def _go(security: ClientSecurity) -> SnippetLines:
    options, before, tls_fields = "", "", []
    imports: list[str] = []
    if security.login is not None:
        auth = f"scram.Auth{{User: {_quoted(security.login.username)}, Pass: {_quoted(security.login.password)}}}"
        options += f",\n\t\tkgo.SASL({auth}.AsSha512Mechanism())"
        imports.append("github.com/twmb/franz-go/pkg/sasl/scram")
    if security.has_ca:
        before += _go_call("ca", f'os.ReadFile("{CA_FILE}")')
        before += "\ttrusted := x509.NewCertPool()\n\ttrusted.AppendCertsFromPEM(ca)\n"
        tls_fields.append("RootCAs: trusted")
        imports += ["crypto/x509", "os"]
    if security.has_client_certificate:
        before += _go_call("own", f'tls.LoadX509KeyPair("{CLIENT_CERTIFICATE_FILE}", "{CLIENT_KEY_FILE}")')
        tls_fields.append("Certificates: []tls.Certificate{own}")
    if security.tls is not None:
        options += f",\n\t\tkgo.DialTLSConfig(&tls.Config{{{', '.join(tls_fields)}}})"
        imports.append("crypto/tls")
    return SnippetLines(options, tuple(imports), before)


def _go_call(name: str, call: str) -> str:
    return f"\t{name}, err := {call}\n\tif err != nil {{\n\t\tlog.Fatal(err)\n\t}}\n"


def _node(security: ClientSecurity) -> SnippetLines:
    options = ""
    if security.tls is not None:
        files = [("ca", CA_FILE)] if security.has_ca else []
        if security.has_client_certificate:
            files += [("cert", CLIENT_CERTIFICATE_FILE), ("key", CLIENT_KEY_FILE)]
        read = ", ".join(f'{name}: require("fs").readFileSync("{file}")' for name, file in files)
        options += f",\n  ssl: {{ {read} }}" if read else ",\n  ssl: true"
    if security.login is not None:
        options += (
            f',\n  sasl: {{ mechanism: "{MECHANISM.lower()}", '
            f"username: {_quoted(security.login.username)}, password: {_quoted(security.login.password)} }}"
        )
    return SnippetLines(options)


def _csharp(security: ClientSecurity) -> SnippetLines:
    options = [f"SecurityProtocol = SecurityProtocol.{CSHARP_PROTOCOLS[security.protocol]}"]
    if security.has_ca:
        options.append(f'SslCaLocation = "{CA_FILE}"')
    if security.has_client_certificate:
        options.append(f'SslCertificateLocation = "{CLIENT_CERTIFICATE_FILE}", SslKeyLocation = "{CLIENT_KEY_FILE}"')
    if security.login is not None:
        options.append("SaslMechanism = SaslMechanism.ScramSha512")
        options.append(
            f"SaslUsername = {_quoted(security.login.username)}, SaslPassword = {_quoted(security.login.password)}"
        )
    return SnippetLines("".join(f",\n    {option}" for option in options))


def _rust(security: ClientSecurity) -> SnippetLines:
    settings = _librdkafka(security)
    return SnippetLines("".join(f"\n    config.set({_quoted(name)}, {_quoted(value)});" for name, value in settings))


def _kcat(security: ClientSecurity) -> SnippetLines:
    return SnippetLines("".join(f" -X {shlex.quote(f'{name}={value}')}" for name, value in _librdkafka(security)))


def _shell(security: ClientSecurity) -> SnippetLines:
    settings = [shlex.quote(f"{name}={value}") for name, value in _java_settings(security)]
    producer = "".join(f" \\\n  --producer-property {setting}" for setting in settings)
    consumer = "".join(f" \\\n  --consumer-property {setting}" for setting in settings)
    return SnippetLines(producer, consumer_settings=consumer)


SNIPPET_WRITERS: Final[dict[str, SnippetWriter]] = {
    "python": _python,
    "java": _java,
    "go": _go,
    "node": _node,
    "csharp": _csharp,
    "rust": _rust,
    "kcat": _kcat,
    "shell": _shell,
}
