"""Benchmark of the console with a large instance (topics, groups, audit log), and of the messages of a large topic.

The pages are requested over HTTP as the owner, until their last byte. Messages: the newest page, a scan that matches
nothing, the time until a scan has ended whose client disconnected, and a producer of another instance beside ten scans.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import http.cookiejar
import itertools
import json
import re
import statistics
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import neighbours
from benchmarks.processor import processor_time, web_processes
from benchmarks.product import Product, bootstrap_of, run_in_shell

CALLS = 40
TOPICS_AT_ONCE = 200
GROUPS_AT_ONCE = 50
PARTITIONS = 6
BANDWIDTH_MB_S = 200
STORAGE_GB = 20
SCAN_S = 15.0
ABANDONED_SCANS = 10
ABANDONED_AFTER_S = 0.1
FREE_WITHIN_S = 30.0
SCANS_AT_ONCE = 10
# Messages in each topic that is scanned beside a producer.
SCANNED_MESSAGES_MAX = 1_000_000
# Value of a message, on average.
MESSAGE_BYTES = 90
SCAN_FILTERS = {"text": "contains=no-message-has-this", "path": "jq=" + urllib.parse.quote(".total > 1000000")}

PREPARE = """
import json
from billing.models import Plan
from tenants import access, services
from tenants.actors import member_actor
Plan.objects.filter(code="river").update(partitions_max=20_000)
tokens = []
for name in ("scans-one", "scans-two"):
    member = services.sign_up(email=f"{name}@example.com", password="a long enough pass phrase", tenant_name=name)
    acting = member_actor(member)
    tokens.append(services.create_token(acting=acting, name="b", scopes=sorted(access.grantable_scopes(acting)))[1])
print(json.dumps({"tokens": tokens}))
"""

FILL_AUDIT = """
import json
from django.db import connection
from instances.models import Instance
tenant = Instance.objects.get(pk={instance!r}).tenant_id
with connection.cursor() as cursor:
    cursor.execute('''
        INSERT INTO tenants_auditentry (id, time, tenant_id, actor_kind, actor_id, actor_label, action, target_type,
                                        target_id, before, after, request_id, ip)
        SELECT 'aud-b' || lpad(n::text, 15, '0'), now() - n * interval '1 minute', %s, 'user', 'usr-bench',
               'ida@example.com', (ARRAY['topic.created', 'user.created', 'messages.read'])[1 + n %% 3], 'topic',
               'topic-' || n, NULL, '{{"partitions": 3}}'::jsonb, 'req-' || n, '192.0.2.1'
        FROM generate_series(1, %s) n''', [tenant, {rows}])
    cursor.execute("ANALYZE tenants_auditentry")
print(json.dumps({{"audit_rows": {rows}}}))
"""


def measure(product: Product, *, topics: int, groups: int, audit_rows: int, messages: int) -> Iterator[dict[str, Any]]:
    """Yields a result with the sizes, one for each page, and one for each figure of messages."""
    tokens = [product.ready["tenant"]["token"], *run_in_shell(product, PREPARE)["tokens"]]
    instance_id = product.create_instance(
        name="console", plan="river", bandwidth_mb_s=BANDWIDTH_MB_S, storage_gb=STORAGE_GB
    )
    bootstrap = bootstrap_of(product.wait_running(instance_id))
    started_s = time.monotonic()
    _make_topics(bootstrap, topics)
    made_s = time.monotonic() - started_s
    _make_groups(bootstrap, groups)
    rows = run_in_shell(product, FILL_AUDIT.format(instance=instance_id, rows=audit_rows))
    yield {"benchmark": "console", "topics": topics, "topics_made_s": round(made_s, 1), "groups": groups, **rows}
    opener, root = _sign_in(product)
    web = web_processes(product.supervisor)
    for page in _page_paths(instance_id):
        yield {"benchmark": f"page {page.replace(instance_id, 'INS')}", **_time_page(opener, root + page, web)}
    yield from _measure_messages(product, opener, root, instance_id, bootstrap, messages)
    yield from _measure_during_scans(product, tokens, min(messages, SCANNED_MESSAGES_MAX))


def _page_paths(instance_id: str) -> Iterator[str]:
    instance_path = f"/instances/{instance_id}/"
    yield from (
        "/instances/",
        instance_path,
        f"{instance_path}why/",
        f"{instance_path}heaviest/",
        f"{instance_path}behind/",
        f"{instance_path}traffic.json",
    )
    yield from (
        f"{instance_path}topics/",
        f"{instance_path}topics/?sort=-size",
        f"{instance_path}topics/?sort=-lag",
        f"{instance_path}topics/?q=0999",
    )
    yield from (
        f"{instance_path}topics/t/topic-00007/",
        f"{instance_path}topics/t/topic-00007/partitions/",
        f"{instance_path}topics/t/topic-00007/config/",
    )
    yield from (
        f"{instance_path}groups/",
        f"{instance_path}groups/?q=group-01",
        f"{instance_path}groups/one/?group=group-00007",
        f"{instance_path}storage/",
    )
    yield from (
        f"{instance_path}clients/",
        f"{instance_path}users/",
        f"{instance_path}quotas/",
        f"{instance_path}access/",
    )
    yield from ("/audit/", "/audit/?q=topic-500000", "/audit/?action=user.created", "/palette/?q=topic-0999&part=names")


def _make_topics(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = iter([f"topic-{number:05d}" for number in range(count)])
    while batch := list(itertools.islice(names, TOPICS_AT_ONCE)):
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in batch], request_timeout=60).values():
            created.result(120)


def _make_groups(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def commit(number: int) -> None:
        offset = TopicPartition(f"topic-{number % 100:05d}", 0, 0)
        group = ConsumerGroupTopicPartitions(f"group-{number:05d}", [offset])
        for attempt in range(20):
            try:
                for committed in admin.alter_consumer_group_offsets([group]).values():
                    committed.result(60)
                return
            except KafkaException:  # the coordinator is being loaded; the client offers nothing to wait for
                time.sleep(0.1 * (attempt + 1))
        raise SystemExit(f"group {number} has no offsets")

    with concurrent.futures.ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
        list(pool.map(commit, range(count)))


def _sign_in(product: Product) -> tuple[urllib.request.OpenerDirector, str]:
    """Signs in as the demo tenant's owner; returns the opener and the root URL."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    root = product.ready["console_url"].rstrip("/")
    page = opener.open(f"{root}/accounts/login/").read().decode()
    token_match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token_match is not None, "the login page has no form"
    owner = product.ready["tenant"]
    body = {"csrfmiddlewaretoken": token_match[1], "login": owner["username"], "password": owner["password"]}
    opener.open(f"{root}/accounts/login/", urllib.parse.urlencode(body).encode())
    return opener, root


def _time_page(
    opener: urllib.request.OpenerDirector, address: str, web: Sequence[psutil.Process], calls: int = CALLS
) -> dict[str, Any]:
    """Returns the response times of a page, until its last byte, and the processor time of the web processes."""
    took_ms: list[float] = []
    before = processor_time(web)
    for _ in range(calls):
        started_s = time.perf_counter()
        try:
            size_bytes = len(opener.open(address).read())
        except urllib.error.HTTPError as refusal:
            return {"status": refusal.code}
        took_ms.append((time.perf_counter() - started_s) * 1_000)
    percentiles = statistics.quantiles(took_ms, n=20)
    first = {"first_ms": round(took_ms[0], 1)}
    return {
        **first,
        "p50_ms": round(statistics.median(took_ms), 1),
        "p95_ms": round(percentiles[-1], 1),
        **processor_time(web).since(before, calls),
        "bytes": size_bytes,
    }


def _measure_messages(
    product: Product, opener: urllib.request.OpenerDirector, root: str, instance_id: str, bootstrap: str, count: int
) -> Iterator[dict[str, Any]]:
    topic = _fill(bootstrap, "ten-million", count)
    messages_path = f"/instances/{instance_id}/topics/{topic}/messages"
    api, token = product.ready["api_url"].rstrip("/"), product.ready["tenant"]["token"]
    web = web_processes(product.supervisor)
    yield {"benchmark": f"newest page of {count} messages, console",
           **_time_page(opener, f"{root}/instances/{instance_id}/topics/t/{topic}/", web)}  # fmt: skip
    rest_opener = urllib.request.build_opener()
    rest_opener.addheaders = [("Authorization", f"Bearer {token}")]
    yield {"benchmark": "newest page, REST", **_time_page(rest_opener, f"{api}{messages_path}?limit=50", web)}
    for name, filter_parameters in SCAN_FILTERS.items():
        before = processor_time(web)
        scan = _scan(api, token, f"{messages_path}?start=oldest&{filter_parameters}", SCAN_S)
        yield {"benchmark": f"scan, {name} filter", **scan,
               **processor_time(web).since(before, scan["pages"] or 1)}  # fmt: skip
    yield {"benchmark": "a scan whose client disconnected", **_measure_abandoned_scans(api, token, messages_path)}


def _fill(bootstrap: str, topic: str, count: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000,
                         "partitioner": "consistent"})  # fmt: skip
    for number in range(count):
        value = b'{"order": %09d, "total": %d, "state": "paid", "from": "a shop in the harbour of Halvorsen"}' % (
            number, number % 1_000,
        )  # fmt: skip
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    return topic


def _scan(api: str, token: str, path: str, seconds: float) -> dict[str, Any]:
    """Reads one page after the other for a time, from the start of the topic again after its end; returns the rate of
    scanned records and the longest page.
    """
    ends_s = time.monotonic() + seconds
    scanned, pages, refused_count, page_token = 0, 0, 0, ""
    started_s = time.monotonic()
    longest_ms = 0.0
    while time.monotonic() < ends_s:
        status, page, took_ms = _timed_get(api, token, path + page_token)
        if status != http.HTTPStatus.OK:
            refused_count += 1
            time.sleep(0.1)
            continue
        longest_ms, pages, scanned = max(longest_ms, took_ms), pages + 1, scanned + page["scanned"]
        page_token = "" if page["next_page_token"] is None else f"&page_token={page['next_page_token']}"
    took_s = time.monotonic() - started_s
    return {"pages": pages, "refused": refused_count, "records_per_s": round(scanned / took_s),
            "mb_per_s": round(scanned * MESSAGE_BYTES / took_s / 1_000_000, 1),
            "longest_page_ms": round(longest_ms)}  # fmt: skip


def _timed_get(api: str, token: str, path: str) -> tuple[int, dict[str, Any], float]:
    request = urllib.request.Request(api + path, headers={"Authorization": f"Bearer {token}"})
    started_s = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, raw = answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        status, raw = refusal.code, refusal.read()
    return status, json.loads(raw), (time.perf_counter() - started_s) * 1_000


def _measure_abandoned_scans(api: str, token: str, messages_path: str) -> dict[str, Any]:
    """Returns the times until the tenant may read messages again after the client of a scan has disconnected."""
    parts = urllib.parse.urlsplit(api)
    costly_filter = urllib.parse.quote(".[] == .[] | " * 10 + "false")
    free_after_ms = []
    for _ in range(ABANDONED_SCANS):
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        path = f"{parts.path}{messages_path}?start=oldest&jq={costly_filter}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        time.sleep(ABANDONED_AFTER_S)
        connection.close()
        started_s = time.perf_counter()
        while _timed_get(api, token, f"{messages_path}?limit=1")[0] != http.HTTPStatus.OK:
            if time.perf_counter() - started_s > FREE_WITHIN_S:
                raise SystemExit(f"the scan of a client that disconnected goes on after {FREE_WITHIN_S} s")
        free_after_ms.append((time.perf_counter() - started_s) * 1_000)
    return {
        "free_after_ms_p50": round(statistics.median(free_after_ms)),
        "free_after_ms_max": round(max(free_after_ms)),
    }


def _measure_during_scans(product: Product, tokens: list[str], messages: int) -> Iterator[dict[str, Any]]:
    """Yields a paced producer's latency alone and beside ten scans by three tenants, in turns."""
    api = product.ready["api_url"].rstrip("/")
    scan_targets = []
    for token in tokens:
        ready = {**product.ready, "tenant": {**product.ready["tenant"], "token": token}}
        tenant = Product(state_dir=product.state_dir, ready=ready, ready_after_s=0, supervisor=product.supervisor)
        instance_id = tenant.create_instance(name="scanned", bandwidth_mb_s=20, storage_gb=5)
        topic = _fill(bootstrap_of(tenant.wait_running(instance_id)), "scanned", messages)
        scan_targets.append(
            (token, f"/instances/{instance_id}/topics/{topic}/messages?start=oldest&{SCAN_FILTERS['text']}")
        )
    modest_id = product.create_instance(name="modest", bandwidth_mb_s=5, storage_gb=1)
    bootstrap = bootstrap_of(product.wait_running(modest_id))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("modest", 3, 1)])["modest"].result(60)
    alone, beside, scans = [], [], []
    for _ in range(3):
        alone.append(neighbours.finish(neighbours.begin_modest_producer(bootstrap, SCAN_S)))
        with concurrent.futures.ThreadPoolExecutor(SCANS_AT_ONCE) as pool:
            scans_to_run = itertools.islice(itertools.cycle(scan_targets), SCANS_AT_ONCE)
            running = [pool.submit(_scan, api, token, path, SCAN_S + 2) for token, path in scans_to_run]
            beside.append(neighbours.finish(neighbours.begin_modest_producer(bootstrap, SCAN_S)))
            scans.append(sum(scan.result()["records_per_s"] for scan in running))
    yield {
        "benchmark": "a producer of another instance beside ten scans",
        **{f"{name}_p{share}_ms": neighbours.median([span.latency_ms(share / 100) for span in spans])
           for share in (50, 99) for name, spans in (("alone", alone), ("beside", beside))},
        "records_scanned_per_s": neighbours.median(scans),
        "errors": sum(len(span.errors) for span in (*alone, *beside)),
    }  # fmt: skip
