"""What this broker leads: one `Partition` over one log, found through the `PartitionTable`.

    table = PartitionTable(StorageSettings(...));  table.recover(now_ms)
    partition = table.become_leader(internal_topic, index, topic_id, leader_epoch, config, now_ms=...)
    partition.append(records, now_ms, acks=1, produce_version=9)     -> AppendResult, at once, in the caller's thread
    partition.read(offset, max_bytes, min_one_batch=True, ...)       -> ReadResult with a FileSlice; release() it when
    sent waiting.FetchWait(wake, min_bytes).watch(partition)              -> `wake()` called once by an append, a
    failure or expire()

No call waits and none touches the event loop; times and error codes are plain integers (`records.verdicts`).
"""
