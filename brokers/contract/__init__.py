"""Contract between the control plane and the broker engine: ZooKeeper paths and documents, events, process settings.

Pure values, which both sides may import. A change here changes a contract between processes that may run different
versions: add optional keys, never repurpose one (ZK-3: unknown keys are ignored, missing ones get defaults).
"""
