"""Code that runs unedited against an instance: host, topic and who signs in are filled in. Pure texts, one per
language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from instances.models import Instance
from instances.views.snippet_logins import NOBODY, Login

DEFAULT_TOPIC = "orders"


class Snippet(NamedTuple):
    """One tab: `choice` is remembered by the browser, `install` is what has to be there first."""

    choice: str
    label: str
    install: str
    code: str


PYTHON = """\
from confluent_kafka import Producer

p = Producer({
    "bootstrap.servers": "<servers>",<login>
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
        p.put("bootstrap.servers", "<servers>");<login>
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
	"context"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"<import>
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(<quoted servers>)<login>)
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

const producer = new Kafka({ brokers: [<quoted servers>]<login> }).producer();

(async () => {
  await producer.connect();
  await producer.send({ topic: "<topic>", messages: [{ key: "o-1", value: '{"total": 42}' }] });
  await producer.disconnect();
})();
"""

CSHARP = """\
using Confluent.Kafka;

var config = new ProducerConfig { BootstrapServers = "<servers>"<login> };
using var producer = new ProducerBuilder<string, string>(config).Build();
await producer.ProduceAsync("<topic>", new Message<string, string> { Key = "o-1", Value = "{\\"total\\": 42}" });
"""

KCAT = """\
echo 'o-1:{"total": 42}' | kcat -P -b <servers><login> -t <topic> -K:
kcat -C -b <servers><login> -t <topic> -o beginning -e -f '%k %s\\n'
"""

SHELL = """\
echo 'o-1:{"total": 42}' | kafka-console-producer.sh --bootstrap-server <servers> \\
  --topic <topic> --property parse.key=true --property key.separator=:<login>
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


def snippets(instance: Instance, topic: str | None, login: Login | None = None) -> list[Snippet]:
    """All languages for one instance; without a topic the default name, which the first message creates. `login` is
    who signs in, where the instance asks for it.
    """
    servers = instance.bootstrap_servers
    quoted = ", ".join(f'"{address}"' for address in servers.split(","))

    def filled(choice: str, text: str) -> str:
        lines = NOBODY if login is None else login.lines(choice)
        text = text.replace("<quoted servers>", quoted).replace("<servers>", servers)
        text = text.replace("<topic>", topic or DEFAULT_TOPIC).replace("<import>", lines.needs)
        return text.replace("<login>", lines.settings)  # last: it may hold anything

    return [Snippet(choice, label, install, filled(choice, code)) for choice, label, install, code in TEMPLATES]
