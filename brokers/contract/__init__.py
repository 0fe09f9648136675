"""What the control plane and the broker engine agree on: ZooKeeper paths and documents, usage events, process settings.

Pure values; importable from both sides of the wall. A change here is a change of a contract between processes that may
run different versions: add optional keys, never repurpose one (ZK-3: unknown keys are ignored, missing ones defaulted).
"""
