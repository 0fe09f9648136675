"""What instances may store, and what disks must keep free (CKA-26): pure, the clock is handed in.

`room`: what one broker may append for an instance, looked at by every produce. `credits`: one broker's side of the
exchange that fills rooms. `ledger`: the controller's side, which hands out what was bought. `disk_space`: the floor of
free disk that no instance passes.
"""
