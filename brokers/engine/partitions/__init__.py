"""Replicas of partitions on this broker: one `Partition` over one log, found through the `PartitionTable`.

    table = PartitionTable(StorageSettings(...));  table.recover(now_ms)
    partition = table.become_leader(internal_topic, index, topic_id, leader_epoch, config, now_ms=...)
    partition.append(records, now_ms, acks=1, produce_version=9)     -> AppendResult
    partition.read(offset, max_bytes, min_one_batch=True, ...)       -> ReadResult; release() its slice when sent
    DelayedRead(wake, missing_bytes).watch(partition)                -> calls `wake()` once, after appends or expire()

No call waits and none touches the event loop; times and error codes are plain integers (`records.error_codes`).
"""
