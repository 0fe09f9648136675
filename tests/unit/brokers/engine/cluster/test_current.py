"""The current image reaches every subscriber, even if one fails, and that one gets all missed changes the next time."""

from __future__ import annotations

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage, ImageDelta


def images(count: int) -> list[ClusterImage]:
    first = ClusterImage("cl-test")
    return [first, *(first.with_changes(ImageDelta(controller_id=number)) for number in range(1, count))]


def test_a_failing_subscriber_does_not_affect_others_and_gets_missed_changes_later() -> None:
    first, second, third, fourth = images(4)
    current = CurrentImage(first)
    poison = [second, third]
    taken: list[tuple[ClusterImage, ClusterImage]] = []
    others: list[ClusterImage] = []

    def fails(before: ClusterImage, after: ClusterImage) -> None:
        if after in poison:
            raise ValueError("a document without sense")
        taken.append((before, after))

    current.subscribe(fails)
    current.subscribe(lambda before, after: others.append(after))
    for image in (second, third, fourth):
        current.publish(image)

    assert others == [second, third, fourth]
    assert taken == [(first, fourth)]
    assert current.failures == 2
    assert current.image is fourth


async def test_a_wait_for_an_image_ends_even_if_a_subscriber_fails() -> None:
    first, second = images(2)
    current = CurrentImage(first)

    def fails(before: ClusterImage, after: ClusterImage) -> None:
        raise RuntimeError

    current.subscribe(fails)
    current.publish(second)

    assert await current.wait_until(lambda image: image is second, 1)


def test_a_later_subscriber_gets_the_changes_since_its_subscription() -> None:
    first, second, third = images(3)
    current = CurrentImage(first)
    current.publish(second)
    seen: list[tuple[ClusterImage, ClusterImage]] = []
    current.subscribe(lambda before, after: seen.append((before, after)))
    current.publish(third)
    assert seen == [(second, third)]
