"""FindCoordinator in every version, for groups and for transactional ids (GRP-3)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from tests.differential.members import GROUP, TRANSACTION, begin_script
from tests.differential.play import Player

PREFIX = "diff.coordinators"
KEYS_FROM = 4


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in range(7):

        def ask(what: str, kind: int, *keys: str, version: int = version) -> None:
            if version >= KEYS_FROM:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
            else:
                request = FindCoordinatorRequest(key_type=kind, key=keys[0])
            player.ask(f"v{version}: {what}", ApiKey.FIND_COORDINATOR, version, request)

        ask("a group", GROUP, f"{PREFIX}.group")
        ask("an empty group", GROUP, "")
        ask("a group in Chinese", GROUP, "组")
        if version >= 1:
            ask("a transactional id", TRANSACTION, f"{PREFIX}.id")
            ask("an empty transactional id", TRANSACTION, "")
            for kind in (2, 3, 7, -1):
                ask(f"kind {kind}", kind, f"{PREFIX}.group")
        if version >= KEYS_FROM:
            ask("no keys", GROUP)
            ask("three keys", GROUP, f"{PREFIX}.b", f"{PREFIX}.a", f"{PREFIX}.c")
            ask("a key twice", GROUP, f"{PREFIX}.b", f"{PREFIX}.b")
            ask("an empty key among others", GROUP, f"{PREFIX}.b", "")
            ask("two transactional ids", TRANSACTION, f"{PREFIX}.b", f"{PREFIX}.a")
            ask("kind 7, two keys", 7, f"{PREFIX}.b", f"{PREFIX}.a")
