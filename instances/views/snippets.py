"""Code that runs unedited against an instance: host, topic, who signs in and whose certificate to trust are filled in.
Pure texts, one per language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from instances.views.snippet_security import OPEN, ClientSecurity

DEFAULT_TOPIC = "orders"


class Snippet(NamedTuple):
    """One tab: `choice` is remembered by the browser, `install` is what has to be there first."""

    choice: str
    label: str
    install: str
    code: str


class Place(Protocol):
    """An instance, or one of its routes."""

    @property
    def bootstrap_servers(self) -> str: ...


PYTHON = """\
from confluent_kafka import Producer

p = Producer({
    "bootstrap.servers": "<servers>",<security>
})
p.produce("<topic>", key="o-1", value=b'{"total": 42}')
p.flush()
"""

JAVA = """\
import java.util.Properties;
import org.apache.kafka.clients.producer.*;

public class Main {
    public static void main(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", "<servers>");<security>
        p.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        p.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (Producer<String, String> producer = new KafkaProducer<>(p)) {
            producer.send(new ProducerRecord<>("<topic>", "o-1", "{\\"total\\": 42}"));
        }
    }
}
"""

GO = """\
package main

import (
<imports>
)

func main() {
<before>	client, err := kgo.NewClient(kgo.SeedBrokers(<quoted servers>)<security>)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "<topic>", Key: []byte("o-1"), Value: []byte(`{"total": 42}`)}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		log.Fatal(err)
	}
}
"""

NODE = """\
const { Kafka } = require("kafkajs");

const producer = new Kafka({ brokers: [<quoted servers>]<security> }).producer();

(async () => {
  await producer.connect();
  await producer.send({ topic: "<topic>", messages: [{ key: "o-1", value: '{"total": 42}' }] });
  await producer.disconnect();
})();
"""

CSHARP = """\
using Confluent.Kafka;

var config = new ProducerConfig { BootstrapServers = "<servers>"<security> };
using var producer = new ProducerBuilder<string, string>(config).Build();
await producer.ProduceAsync("<topic>", new Message<string, string> { Key = "o-1", Value = "{\\"total\\": 42}" });
"""

KCAT = """\
echo 'o-1:{"total": 42}' | kcat -P -b <servers><security> -t <topic> -K:
kcat -C -b <servers><security> -t <topic> -o beginning -e -f '%k %s\\n'
"""

SHELL = """\
echo 'o-1:{"total": 42}' | kafka-console-producer.sh --bootstrap-server <servers> \\
  --topic <topic> --property parse.key=true --property key.separator=:<security>
"""

TEMPLATES = (
    ("python", "Python", "pip install confluent-kafka", PYTHON),
    ("java", "Java", "org.apache.kafka:kafka-clients", JAVA),
    ("go", "Go", "go get github.com/twmb/franz-go", GO),
    ("node", "Node", "npm install kafkajs", NODE),
    ("csharp", "C#", "dotnet add package Confluent.Kafka", CSHARP),
    ("kcat", "kcat", "apt install kcat", KCAT),
    ("shell", "Shell", "Apache Kafka bin/", SHELL),
)


def topic_for(existing: Collection[str], *, looked_at: str, created: Iterable[str]) -> str | None:
    """The topic a snippet is about: the one looked at last, else the newest. `created` are names, latest first.

    Kafka does not say when a topic was made: those that clients made come last, by name.
    """
    for name in (looked_at, *created):
        if name in existing:
            return name
    return min(existing, default=None)


def snippets(place: Place, topic: str | None, security: ClientSecurity = OPEN) -> list[Snippet]:
    """All languages for one address; without a topic the default name, which the first message creates."""
    servers = place.bootstrap_servers
    quoted = ", ".join(f'"{address}"' for address in servers.split(","))

    def filled(choice: str, text: str) -> str:
        lines = security.lines(choice)
        text = text.replace("<quoted servers>", quoted).replace("<servers>", servers)
        text = text.replace("<topic>", topic or DEFAULT_TOPIC).replace("<imports>", _imports(lines.imports))
        text = text.replace("<before>", lines.before)
        return text.replace("<security>", lines.settings)  # last: it may hold anything

    return [Snippet(choice, label, install, filled(choice, code)) for choice, label, install, code in TEMPLATES]


def _imports(more: Iterable[str]) -> str:
    """Of the Go snippet, as gofmt orders them: those of Go itself first."""
    paths = sorted({"context", "log", "github.com/twmb/franz-go/pkg/kgo", *more})
    own, others = ([f'\t"{path}"' for path in paths if ("." in path) is is_other] for is_other in (False, True))
    return "\n".join([*own, "", *others])
