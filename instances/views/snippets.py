"""Code snippets that run unedited against an instance: host, topic, user and CA file are filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from instances.views.snippet_security import NO_SECURITY, ClientSecurity

DEFAULT_TOPIC = "orders"


class Snippet(NamedTuple):
    """A snippet in one language, shown as a tab. The browser remembers `choice`; `install` installs the client."""

    choice: str
    label: str
    install: str
    code: str


class BootstrapAddress(Protocol):
    """An instance, or one of its routes."""

    @property
    def bootstrap_servers(self) -> str: ...


# The snippets use a consumer group of their own, read from the beginning, and end after ten seconds without messages.
PYTHON = """\
from confluent_kafka import Consumer, Producer

config = {
    "bootstrap.servers": "<servers>",<security>
}
producer = Producer(config)
producer.produce("<topic>", key="o-1", value=b'{"total": 42}')
producer.flush()

consumer = Consumer(config | {"group.id": "snippet", "auto.offset.reset": "earliest"})
consumer.subscribe(["<topic>"])
while (message := consumer.poll(10)) is not None:
    print(message.error() or (message.key(), message.value()))
consumer.close()
"""

JAVA = """\
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.*;
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
        p.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("group.id", "snippet");
        p.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(List.of("<topic>"));
            ConsumerRecords<String, String> records;
            do {
                records = consumer.poll(Duration.ofSeconds(10));
                records.forEach(record -> System.out.println(record.key() + " " + record.value()));
            } while (!records.isEmpty());
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
<before>	client, err := kgo.NewClient(kgo.SeedBrokers(<quoted servers>), kgo.ConsumerGroup("snippet"),
		kgo.ConsumeTopics("<topic>"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())<security>)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "<topic>", Key: []byte("o-1"), Value: []byte(`{"total": 42}`)}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		log.Fatal(err)
	}
	for {
		quiet, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		fetches := client.PollFetches(quiet)
		cancel()
		if fetches.NumRecords() == 0 {
			break
		}
		fetches.EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Key), string(r.Value)) })
	}
}
"""

NODE = """\
const { Kafka } = require("kafkajs");

const kafka = new Kafka({ brokers: [<quoted servers>]<security> });
const producer = kafka.producer();
const consumer = kafka.consumer({ groupId: "snippet" });

(async () => {
  await producer.connect();
  await producer.send({ topic: "<topic>", messages: [{ key: "o-1", value: '{"total": 42}' }] });
  await producer.disconnect();

  await consumer.connect();
  await consumer.subscribe({ topic: "<topic>", fromBeginning: true });
  let quiet = setTimeout(() => consumer.disconnect(), 10_000);
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(String(message.key), String(message.value));
      quiet.refresh();
    },
  });
})();
"""

CSHARP = """\
using Confluent.Kafka;

var config = new ClientConfig { BootstrapServers = "<servers>"<security> };
using var producer = new ProducerBuilder<string, string>(config).Build();
await producer.ProduceAsync("<topic>", new Message<string, string> { Key = "o-1", Value = "{\\"total\\": 42}" });

var reading = new ConsumerConfig(config) { GroupId = "snippet", AutoOffsetReset = AutoOffsetReset.Earliest };
using var consumer = new ConsumerBuilder<string, string>(reading).Build();
consumer.Subscribe("<topic>");
while (consumer.Consume(TimeSpan.FromSeconds(10)) is { } result)
    Console.WriteLine($"{result.Message.Key} {result.Message.Value}");
consumer.Close();
"""

RUST = """\
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message};
use std::{error::Error, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", "<servers>");<security>

    let producer: BaseProducer = config.create()?;
    producer.send(BaseRecord::to("<topic>").key("o-1").payload(r#"{"total": 42}"#)).map_err(|(error, _)| error)?;
    producer.flush(Duration::from_secs(10))?;

    config.set("group.id", "snippet").set("auto.offset.reset", "earliest");
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&["<topic>"])?;
    while let Some(message) = consumer.poll(Duration::from_secs(10)) {
        let message = message?;
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        println!("{} {}", text(message.key()), text(message.payload()));
    }
    Ok(())
}
"""

KCAT = """\
echo 'o-1:{"total": 42}' | kcat -P -b <servers><security> -t <topic> -K:
kcat -C -b <servers><security> -t <topic> -o beginning -e -f '%k %s\\n'
"""

SHELL = """\
echo 'o-1:{"total": 42}' | kafka-console-producer.sh --bootstrap-server <servers> \\
  --topic <topic> --property parse.key=true --property key.separator=:<security>
kafka-console-consumer.sh --bootstrap-server <servers> --topic <topic> --from-beginning \\
  --timeout-ms 10000 --property print.key=true<security of consumers>
"""

TEMPLATES = (
    ("python", "Python", "pip install confluent-kafka", PYTHON),
    ("java", "Java", "org.apache.kafka:kafka-clients", JAVA),
    ("go", "Go", "go get github.com/twmb/franz-go", GO),
    ("node", "Node", "npm install kafkajs", NODE),
    ("csharp", "C#", "dotnet add package Confluent.Kafka", CSHARP),
    ("rust", "Rust", "cargo add rdkafka --features cmake-build,ssl", RUST),
    ("kcat", "kcat", "apt install kcat", KCAT),
    ("shell", "Shell", "Apache Kafka bin/", SHELL),
)


def topic_for(existing: Collection[str], *, last_viewed: str, created: Iterable[str]) -> str | None:
    """Returns the topic for a snippet: the one viewed last, else the newest. `created` has names, latest first.

    Kafka has no creation time of topics, so those that clients created come last, in the order of names.
    """
    for name in (last_viewed, *created):
        if name in existing:
            return name
    return min(existing, default=None)


def snippets(address: BootstrapAddress, topic: str | None, security: ClientSecurity = NO_SECURITY) -> list[Snippet]:
    """Returns the snippets in all languages for one address; without a topic, with the default name."""
    servers = address.bootstrap_servers
    quoted_servers = ", ".join(f'"{server}"' for server in servers.split(","))

    def fill_in(choice: str, text: str) -> str:
        lines = security.lines(choice)
        text = text.replace("<quoted servers>", quoted_servers).replace("<servers>", servers)
        text = text.replace("<topic>", topic or DEFAULT_TOPIC).replace("<imports>", _imports(lines.imports))
        text = text.replace("<before>", lines.before)
        # Last, and by splitting: a password may contain the placeholders of this module.
        pieces = re.split("(<security>|<security of consumers>)", text)
        settings = {"<security>": lines.settings, "<security of consumers>": lines.consumer_settings}
        return "".join(settings.get(piece, piece) for piece in pieces)

    return [Snippet(choice, label, install, fill_in(choice, code)) for choice, label, install, code in TEMPLATES]


def _imports(additional: Iterable[str]) -> str:
    """Returns the imports of the Go snippet in gofmt's order: the standard library first."""
    paths = sorted({"context", "fmt", "log", "time", "github.com/twmb/franz-go/pkg/kgo", *additional})
    standard, third_party = (
        [f'\t"{path}"' for path in paths if ("." in path) is has_host] for has_host in (False, True)
    )
    return "\n".join([*standard, "", *third_party])
