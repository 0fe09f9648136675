"""ZooKeeper's documents in a backup: complete, and with numbers used since skipped."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from config.backup.tree_file import (
    LEADER_EPOCHS_AHEAD,
    PRODUCER_IDS_AHEAD,
    WITHOUT_CHILDREN,
    TreeNode,
    moved_ahead,
    read_nodes,
    relative,
    write_nodes,
)

ROOT = paths.chroot("cl-1")


@given(
    st.lists(st.builds(TreeNode, st.text(max_size=20).map(lambda name: f"{ROOT}/{name}"), st.binary(), st.integers(0)))
)
def test_nodes_are_read_as_they_were_written(nodes: list[TreeNode]) -> None:
    stream = io.BytesIO()
    write_nodes(stream, nodes)
    stream.seek(0)
    assert list(read_nodes(stream)) == nodes


@pytest.mark.parametrize("path", ["/zookeeper/config", "/penstock", "/", "penstock/cl-1"])
def test_a_node_outside_of_the_clusters_is_refused(path: str) -> None:
    stream = io.BytesIO(json.dumps({"path": path, "version": 0, "data": ""}).encode())
    with pytest.raises(ValueError, match="no node of a cluster"):
        list(read_nodes(stream))


def test_paths_are_relative_to_the_root_of_their_cluster() -> None:
    assert [relative(path) for path in ("/penstock", ROOT, f"{ROOT}/brokers/ids")] == ["", "", "/brokers/ids"]


def test_leader_epochs_go_ahead_of_those_that_logs_may_have() -> None:
    before = PartitionStateDocument(leader=2, leader_epoch=7, controller_epoch=3, isr=(2, 3), isr_broker_epochs=(9, 8))
    node = TreeNode(f"{ROOT}{paths.partition_state('ins-1.orders', 4)}", before.to_json(), 5)
    after = PartitionStateDocument.from_json(moved_ahead(node).data)
    assert after.leader_epoch == 7 + LEADER_EPOCHS_AHEAD
    assert (after.leader, after.isr, after.isr_broker_epochs) == (2, (2, 3), (9, 8))


def test_producer_ids_go_ahead_of_those_that_were_given_out() -> None:
    body = {"version": 1, "broker": 1, "block_start": "2000", "block_end": "2999"}
    node = TreeNode(f"{ROOT}{paths.PRODUCER_ID_BLOCK}", json.dumps(body).encode(), 3)
    after = json.loads(moved_ahead(node).data)
    assert int(after["block_end"]) - int(after["block_start"]) == 999
    assert int(after["block_start"]) == 2999 + PRODUCER_IDS_AHEAD


@pytest.mark.parametrize("path", [paths.partition_state("t", 0), paths.PRODUCER_ID_BLOCK, paths.topic("state")])
@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"{}"])
def test_documents_that_make_no_sense_stay_as_they_are(path: str, data: bytes) -> None:
    node = TreeNode(f"{ROOT}{path}", data, 1)
    assert moved_ahead(node) == node


def test_logs_of_changes_are_not_kept() -> None:
    assert {paths.CHANGES, paths.CONFIG_CHANGES} <= WITHOUT_CHILDREN < set(paths.PERSISTENT_AT_START)
