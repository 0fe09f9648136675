"""The elected controller: keeps partition states in step with who lives (CTL-1…20, REP-27…30, ASG-1…9).

`decide` is pure and level-triggered, `loop` carries its instructions out through the store.
"""
