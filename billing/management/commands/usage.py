"""Command `manage.py usage`: shows the progress of the pipeline and skips lost reports."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from django.core.management.base import BaseCommand, CommandError

from billing import dsn, selectors
from billing.pipeline import job, sink
from billing.pipeline.cluster import UsageSource
from brokers.contract.usage import USAGE_TOPIC


class Command(BaseCommand):
    help = "Looks after the pipeline: what is read of the usage that brokers report."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subcommands = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        status = subcommands.add_parser("status", help="offsets read and there; ends with 1 where reports are lost")
        skip = subcommands.add_parser(
            "skip-lost", help="go on at the start of each log whose stored offset it does not hold"
        )
        for parser_ in (status, skip):
            parser_.add_argument("--cluster", metavar="ID", help="default: all")

    def handle(self, *_: Any, **options: Any) -> None:
        clusters = [
            cluster for cluster in selectors.usage_sources() if options["cluster"] in (None, cluster.cluster_id)
        ]
        if options["cluster"] and not clusters:
            raise CommandError(f"There is no cluster {options['cluster']} whose brokers run.")
        run = self._skip_lost if options["act"] == "skip-lost" else self._status
        lost = 0
        for cluster in clusters:
            try:
                lost += run(cluster)
            except KafkaException as error:
                raise CommandError(f"{cluster.cluster_id}: its brokers do not answer ({error}).") from None
            except sink.PipelineBusy:
                raise CommandError(f"{cluster.cluster_id}: a run is at work on it; try again.") from None
        if lost:
            raise CommandError(f"{lost} partitions have lost reports: manage.py usage skip-lost goes on without them.")

    def _status(self, cluster: UsageSource) -> int:
        """Prints the progress and returns the number of partitions that have lost reports."""
        with psycopg.connect(dsn.conninfo(), autocommit=True) as connection:
            stored = sink.stored_offsets(connection, cluster.cluster_id)
        available = job.available_offsets(cluster)
        lost = job.lost(stored, available)
        for partition, (low, high) in sorted(available.items()):
            next_offset = stored.get(partition, low)
            state = f"LOST: the log holds [{low}, {high})" if partition in lost else f"{high - next_offset} to go"
            self.stdout.write(f"{cluster.cluster_id} {USAGE_TOPIC}-{partition}: read up to {next_offset}, {state}")
        return len(lost)

    def _skip_lost(self, cluster: UsageSource) -> int:
        skipped = job.skip_lost(cluster, dsn.conninfo())
        for partition, (old, new) in skipped.items():
            self.stdout.write(f"{cluster.cluster_id} {USAGE_TOPIC}-{partition}: was at {old}, goes on at {new}")
        if not skipped:
            self.stdout.write(f"{cluster.cluster_id}: nothing is lost")
        return 0
