"""Controller scenarios as readable scripts, `scenarios/*.txt`: each command is followed by what the controller ordered.

    brokers 1 2 3           these live (a broker that was not there registers now)
    bounce 2                registers again without having been missed
    topic t 1,2 2,3         a topic appears, one word of replicas per partition
    grow t 3,1              further partitions
    config t key=value      topic configuration
    mark t                  marked for deletion
    elect | depose          this broker wins or loses the controllership
    carry out               everything ordered is written and shows in the image
    lose                    every ordered write loses its race, and the topics are read again
    late                    the same image again, before anything was written
    stop 2                  broker 2 announces that it will stop
    isr t-0 1,2             the leader writes this ISR, of the lives there are
    move t-0 3,4            an operator moves a partition
    call off t-0            the operator wants it back where it was
    balance                 time to look where leaders are
    show t                  leader (ISR) epoch of each partition, and replicas while it moves

The transcript is below `----`. `REWRITE_SCENARIOS=1 pytest …` writes it again; read the difference before keeping it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.controller_epoch import ControllerEpoch
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.cluster.reassignment_plans import Assignment, state_after
from brokers.engine.controller.decide import decide
from brokers.engine.controller.events import (
    BalanceDue,
    ControllerState,
    CreateSystemTopic,
    Deposed,
    Elected,
    Event,
    FinishDeletion,
    FinishReassignments,
    GrowSystemTopic,
    ImageChanged,
    Instruction,
    ReconcileAgain,
    StatesWritten,
    TopicApplied,
    WriteStates,
)

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
SEPARATOR = "----"


class World:
    """A model of the tree, and the controller that watches it. Every change gets the next zxid."""

    def __init__(self) -> None:
        self.zxid = 100
        self.epoch = 0
        self.image = ClusterImage("cl")
        self.state = ControllerState(broker_id=1, image=self.image)
        self.ordered: list[Instruction] = []
        self.said: list[str] = []

    def do(self, line: str) -> str:
        verb, *words = line.split()
        self.said = []
        commands: dict[str, Callable[..., None]] = {
            "brokers": self.brokers,
            "bounce": self.bounce,
            "topic": self.topic,
            "grow": self.grow,
            "config": self.config,
            "mark": self.mark,
            "elect": self.elect,
            "depose": self.depose,
            "carry": self.carry_out,
            "lose": self.lose,
            "late": self.show_image,
            "stop": self.stop,
            "isr": self.isr,
            "move": self.move,
            "call": lambda _off, key: self.move(key, None),
            "balance": lambda: self.feed(BalanceDue()),
            "show": self.show,
        }
        commands[verb](*words)
        self.state.check()
        return "\n".join(self.said) or "nothing"

    def brokers(self, *ids: str) -> None:
        self.zxid += 1
        live = {int(id): self.image.brokers.get(int(id), registered(int(id), self.zxid)) for id in ids}
        self.image = self.image.with_changes(ImageDelta(brokers=live))
        self.show_image()

    def bounce(self, id: str) -> None:
        self.zxid += 1
        again = {**self.image.brokers, int(id): registered(int(id), self.zxid)}
        self.image = self.image.with_changes(ImageDelta(brokers=again))
        self.show_image()

    def topic(self, name: str, *replicas: str) -> None:
        topic_id = random.Random(name).randbytes(16)
        self.put(TopicImage(name, name, None, topic_id, partitions_of(replicas, 0), {}))

    def grow(self, name: str, *replicas: str) -> None:
        topic = self.image.topics[name]
        added = partitions_of(replicas, len(topic.partitions))
        self.put(replace(topic, partitions=topic.partitions + added))

    def config(self, name: str, setting: str) -> None:
        key, _, value = setting.partition("=")
        topic = self.image.topics[name]
        self.put(replace(topic, config={**topic.config, key: value}))

    def mark(self, name: str) -> None:
        self.put(replace(self.image.topics[name], deleting=True))

    def put(self, topic: TopicImage) -> None:
        self.zxid += 1
        self.image = self.image.with_changes(ImageDelta(topics={topic.name: topic}))
        self.show_image()

    def stop(self, id: str) -> None:
        stopping = replace(self.image.brokers[int(id)], stopping=True)
        self.image = self.image.with_changes(ImageDelta(brokers={**self.image.brokers, int(id): stopping}))
        self.show_image()

    def isr(self, key: str, members: str) -> None:
        name, _, index = key.rpartition("-")
        partition = self.image.topics[name].partitions[int(index)]
        isr = tuple(int(id) for id in members.split(","))
        assert partition.version is not None
        self.put_partition(
            name,
            replace(
                partition,
                isr=isr,
                isr_epochs=tuple(self.image.brokers[id].epoch for id in isr),
                version=partition.version + 1,
            ),
        )

    def move(self, key: str, target: str | None) -> None:
        name, _, index = key.rpartition("-")
        partition = self.image.topics[name].partitions[int(index)]
        present = Assignment(partition.replicas, partition.adding, partition.removing)
        wanted = present.with_target(present.original if target is None else tuple(int(id) for id in target.split(",")))
        document = state_after(partition, wanted, self.image.brokers, self.epoch)
        if document is not None:
            partition = self.written(partition, document)
        moving = replace(partition, replicas=wanted.replicas, adding=wanted.adding, removing=wanted.removing)
        self.put_partition(name, moving)

    def put_partition(self, name: str, partition: PartitionImage) -> None:
        topic = self.image.topics[name]
        parts = list(topic.partitions)
        parts[partition.index] = partition
        self.put(replace(topic, partitions=tuple(parts)))

    def written(self, partition: PartitionImage, document: PartitionStateDocument) -> PartitionImage:
        return replace(
            partition,
            leader=document.leader,
            leader_epoch=document.leader_epoch,
            isr=document.isr,
            isr_epochs=document.isr_broker_epochs,
            controller_epoch=document.controller_epoch,
            version=0 if partition.version is None else partition.version + 1,
            written_at=self.zxid,
        )

    def elect(self) -> None:
        self.epoch += 1
        self.feed(Elected(ControllerEpoch(broker_id=1, epoch=self.epoch, guard_version=self.epoch)))

    def depose(self) -> None:
        self.ordered = []
        self.feed(Deposed("somebody else"))

    def show_image(self) -> None:
        self.feed(ImageChanged(self.image))

    def carry_out(self, _out: str) -> None:
        ordered, self.ordered = self.ordered, []
        for instruction in ordered:
            match instruction:
                case WriteStates(writes) | FinishReassignments(_, writes):
                    self.zxid += 1
                    written = {}
                    for write in writes:
                        written[write.key] = 0 if write.version is None else write.version + 1
                        topic = self.image.topics[write.topic]
                        parts = list(topic.partitions)
                        part = self.written(parts[write.index], write.document)
                        if isinstance(instruction, FinishReassignments):
                            part = replace(part, replicas=part.target, adding=(), removing=())
                        parts[write.index] = part
                        self.image = self.image.with_changes(
                            ImageDelta(topics={topic.name: replace(topic, partitions=tuple(parts))})
                        )
                    self.feed(StatesWritten(written))
                case FinishDeletion(topic):
                    self.image = self.image.with_changes(ImageDelta(topics={topic.name: None}))
                    self.feed(TopicApplied(topic.name))
                case CreateSystemTopic(name, assignment, config):
                    words = [",".join(map(str, assignment[index])) for index in sorted(assignment)]
                    topic = TopicImage(name, name, None, bytes(15) + b"u", partitions_of(words, 0), config)
                    self.image = self.image.with_changes(ImageDelta(topics={name: topic}))
                    self.feed(TopicApplied(name))
                case GrowSystemTopic(name, present, added):
                    topic = self.image.topics[name]
                    parts = partitions_of([",".join(map(str, replicas)) for replicas in added], present)
                    self.image = self.image.with_changes(
                        ImageDelta(topics={name: replace(topic, partitions=topic.partitions + parts)})
                    )
                    self.feed(TopicApplied(name))
        self.show_image()

    def lose(self) -> None:
        ordered, self.ordered = self.ordered, []
        for instruction in ordered:
            if isinstance(instruction, WriteStates | FinishReassignments):
                self.feed(StatesWritten({}, tuple(write.key for write in instruction.writes)))
        looks = [instruction.topics for instruction in self.ordered if isinstance(instruction, ReconcileAgain)]
        again = {name for names in looks for name in names}
        self.ordered = []
        self.image = self.image.with_changes(
            ImageDelta(topics={name: replace(self.image.topics[name]) for name in again})
        )
        self.show_image()

    def show(self, name: str) -> None:
        if name not in self.image.topics:
            self.said.append("gone")
            return
        for partition in self.image.topics[name].partitions:
            isr = ",".join(map(str, partition.isr))
            moving = f", on {','.join(map(str, partition.replicas))}" if partition.is_reassigning else ""
            self.said.append(
                f"{name}-{partition.index}: leader {partition.leader} ({isr}) epoch {partition.leader_epoch}{moving}"
            )

    def feed(self, event: Event) -> None:
        self.state, instructions = decide(self.state, event)
        self.ordered += instructions
        for instruction in instructions:
            self.said += sent(instruction)


def sent(instruction: Instruction) -> list[str]:
    match instruction:
        case WriteStates(writes, cause):
            lines = [f"write states, because of: {cause}"]
            for write in writes:
                over = "first" if write.version is None else f"over version {write.version}"
                isr = ",".join(map(str, write.document.isr))
                lines.append(
                    f"  {write.topic}-{write.index}: leader {write.document.leader} ({isr}) "
                    f"epoch {write.document.leader_epoch}, {over}"
                )
            return lines
        case FinishReassignments(topic, writes):
            return [
                f"end the move of {topic.name}-{write.index}: leader {write.document.leader} "
                f"({','.join(map(str, write.document.isr))}) epoch {write.document.leader_epoch}"
                for write in writes
            ]
        case FinishDeletion(topic):
            return [f"remove {topic.name}"]
        case CreateSystemTopic(name, assignment, _):
            return [f"create {name} " + " ".join(",".join(map(str, replicas)) for replicas in assignment.values())]
        case GrowSystemTopic(name, present, added):
            return [f"grow {name} behind {present} by " + " ".join(",".join(map(str, item)) for item in added)]
        case ReconcileAgain(topics):
            return [f"look again at {', '.join(topics)}"]


def partitions_of(words: tuple[str, ...] | list[str], first: int) -> tuple[PartitionImage, ...]:
    return tuple(
        PartitionImage(first + offset, tuple(int(id) for id in word.split(","))) for offset, word in enumerate(words)
    )


def registered(id: int, zxid: int) -> BrokerInfo:
    return BrokerInfo(id, "127.0.0.1", 24000 + id, 24050 + id, None, zxid)


def play(script: str) -> str:
    """Play a script and return it with its transcript."""
    world = World()
    blocks: list[str] = []
    for block in script.strip().split("\n\n"):
        commands = [line for line in block.split(f"\n{SEPARATOR}\n")[0].splitlines() if line]
        transcript = [world.do(line) for line in commands if not line.startswith("#")]
        blocks.append("\n".join([*commands, *([SEPARATOR, *transcript] if transcript else [])]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_the_day_goes_as_written(file: Path) -> None:
    script = file.read_text()
    played = play(script)
    if os.environ.get("REWRITE_SCENARIOS"):
        file.write_text(played)
    assert played == file.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 4
