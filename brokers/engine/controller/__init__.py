"""The elected controller: adapts partition states to the live brokers (CTL-1…20, REP-27…30, ASG-1…9).

`decide` is pure and level-triggered; `loop` executes its instructions through the cluster store.
"""
