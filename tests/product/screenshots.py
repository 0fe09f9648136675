"""Pictures of the README, taken in Chromium from a product of its own with some traffic: `make screenshots`.

They show what an owner and an operator see today. Take them again when a page changes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from config.environment import BASE_DIR
from tests.product.browser.conftest import FLAGS
from tests.testkit.stack import Stack, make_stack
from tests.testkit.tenancy import Caller, demo_tenant
from tests.testkit.waiting import eventually

FOLDER: Final = BASE_DIR / "docs" / "pictures"
BYTES_MAX: Final = 150_000
COLOURS: Final = 256
WIDTH: Final = 1280
HEIGHT: Final = 900
TOPIC: Final = "orders"
LINES: Final = 20
GOODS: Final = ("copper pipe", "ball valve", "gasket", "flow meter", "pressure gauge")
# Bytes per second that each client would produce, and the limit of one of them.
CLIENTS: Final = {"shop": 2_000_000, "nightly-import": 1_500_000}
LIMITED: Final = ("nightly-import", 400_000)
PAUSE_S: Final = 0.1
TRAFFIC_S_MAX: Final = 900.0


def order_of(number: int, client_id: str) -> bytes:
    """Returns a message of about a kilobyte."""
    lines = [{"goods": GOODS[(number + line) % len(GOODS)], "count": line % 7 + 1} for line in range(LINES)]
    order = {"order": number, "from": client_id, "state": "paid", "total": number % 90 + 10.5, "lines": lines}
    return json.dumps(order).encode()


class Traffic:
    """Clients that produce and consume; one is over its quota. `read_bytes` counts what the consumer got."""

    def __init__(self, product: Stack) -> None:
        self._settings = product.demo_client()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=client) for client in CLIENTS.items()]
        self._threads.append(threading.Thread(target=self._consume))
        self.read_bytes = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, client_id: str, bytes_per_s: int) -> None:
        producer = Producer(self._settings | {"client.id": client_id})
        order = 0
        while not self._over.wait(PAUSE_S):
            for _ in range(round(bytes_per_s * PAUSE_S / len(order_of(0, client_id)))):
                order += 1
                try:
                    producer.produce(TOPIC, order_of(order, client_id), key=f"order-{order}")
                except BufferError:  # as many wait for the quota as the client keeps
                    break
            producer.poll(0)
        producer.purge()

    def _consume(self) -> None:
        names = {"client.id": "invoices", "group.id": "invoices", "auto.offset.reset": "earliest"}
        consumer = Consumer(self._settings | names)
        consumer.subscribe([TOPIC])
        while not self._over.is_set():
            message = consumer.poll(PAUSE_S)
            if message is not None and message.error() is None:
                self.read_bytes += len(message.value() or b"")
        consumer.close()


@contextmanager
def traffic(product: Stack) -> Iterator[Traffic]:
    """Runs the clients until the block ends."""
    client_id, limit = LIMITED
    body = {"entity": {"client_id": client_id}, "limits": {"producer_byte_rate": limit}}
    status, answer = demo_tenant(product).call("PUT", f"/instances/{product.ready['instance']['id']}/quotas", body)
    assert status == 200, answer
    running = Traffic(product)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def save(page: Page, name: str) -> Path:
    """Saves what the window shows, with fewer colours if the file would be large."""
    file = FOLDER / f"{name}.png"
    page.wait_for_load_state("networkidle")
    page.screenshot(path=file)
    if file.stat().st_size > BYTES_MAX:
        with Image.open(file) as image:
            image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    if file.stat().st_size > BYTES_MAX:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes, more than {BYTES_MAX}")
    return file


def open_page(browser: Browser, theme: str) -> Page:
    """Opens a window in a fresh profile."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        locale="en-GB",
        timezone_id="Europe/Berlin",
    )
    return context.new_page()


def take(product: Stack, browser: Browser) -> Iterator[Path]:
    """Yields the pictures as they are taken."""
    ready = product.ready
    page = open_page(browser, "dark")
    page.goto(f"{ready['console_url']}/accounts/login/")
    page.fill("input[name=login]", ready["tenant"]["username"])
    page.fill("input[name=password]", ready["tenant"]["password"])
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{ready['console_url']}/instances/")
    page.goto(f"{ready['console_url']}/instances/{ready['instance']['id']}/")
    page.get_by_text("nightly-import").first.wait_for()
    yield save(page, "instance")
    page.goto(f"{ready['console_url']}/instances/{ready['instance']['id']}/topics/t/{TOPIC}/")
    page.locator("details.message").first.locator("summary").first.click()
    yield save(page, "messages")
    page = open_page(browser, "light")
    page.goto(f"{ready['console_url']}/operator/login/")
    page.fill("input[name=username]", ready["operator"]["username"])
    page.fill("input[name=password]", ready["operator"]["password"])
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{ready['console_url']}/operator/")
    operator = Caller(api_url=ready["api_url"], token=ready["operator"]["token"])
    _status, clusters = operator.call("GET", "/operator/clusters")
    page.goto(f"{ready['console_url']}/operator/brokers/cluster/{clusters['items'][0]['id']}/map/")
    yield save(page, "cluster")


def main() -> int:
    """Starts a product, waits until its chart has something to show, and takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300, help="traffic before the first picture")
    parser.add_argument("--port-base", type=int, help="first tenant port of the product")
    given = parser.parse_args()
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        raise SystemExit("There is no Chromium on this machine.")
    with tempfile.TemporaryDirectory(prefix="penstock-pictures-") as folder:
        product = make_stack(Path(folder))
        product.port_base = given.port_base or product.port_base
        try:
            product.start()
            with traffic(product) as running, sync_playwright() as playwright:
                wanted_bytes = given.megabytes * 1_000_000
                eventually(lambda: running.read_bytes >= wanted_bytes, within_s=TRAFFIC_S_MAX, what="traffic")
                browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
                for file in take(product, browser):
                    print(f"{file.relative_to(BASE_DIR)}: {file.stat().st_size:,} bytes")
                browser.close()
        finally:
            product.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
