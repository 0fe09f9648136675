"""Group and transaction coordinators: consumer groups with their committed offsets, and transactions (decision 70).

Both run on one runtime. `result` defines a decision, `interfaces` what a coordinator needs from outside, `shard`
appends and replays the decisions of one partition in order, and `runtime` loads and unloads the shards of a state
topic.
"""
