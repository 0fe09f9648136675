"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramUserName,
)
from tests.differential.play import Player
from tests.testkit.scram import salted_password

SALT: Final = b"a salt of theirs"
SHA_256, SHA_512 = 1, 2
Upsertion = tuple[str, int, int]


class _Calls:
    def __init__(self, player: Player) -> None:
        self.player = player

    def alter(self, what: str, deleted: tuple[tuple[str, int], ...] = (), upserted: tuple[Upsertion, ...] = ()) -> None:
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deleted],
            upsertions=[
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=mechanism,
                    iterations=iterations,
                    salt=SALT,
                    salted_password=salted_password("secret", SALT, 4_096, 2 if mechanism == SHA_512 else 1),
                )
                for name, mechanism, iterations in upserted
            ],
        )
        answer = self.player.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        shown = sorted([result.user, result.error_code, result.error_message] for result in answer.results)
        self.player.write_down(f"alter: {what}", shown)

    def describe(self, what: str, *names: str, of_all: bool = False) -> None:
        users = None if of_all else [ScramUserName(name=name) for name in names]
        answer = self.player.call(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=users)
        )
        shown = [
            [
                result.user,
                result.error_code,
                result.error_message,
                sorted([info.mechanism, info.iterations] for info in result.credential_infos),
            ]
            for result in answer.results
            # The users that were there for other scripts.
            if names or result.user.startswith("scram-user")
        ]
        self.player.write_down(f"describe: {what}", [answer.error_code, answer.error_message, shown])


def make(player: Player, name: str, password: str) -> None:
    """A user with this password under both mechanisms."""
    request = AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=4_096,
                salt=SALT,
                salted_password=salted_password(password, SALT, 4_096, mechanism),
            )
            for mechanism in (SHA_256, SHA_512)
        ]
    )
    answer = player.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert [result.error_code for result in answer.results] == [0], answer


def script(player: Player) -> None:
    calls = _Calls(player)
    one, two = "scram-user-1", "scram-user-2"
    calls.describe("nobody there", of_all=True)
    calls.describe("unknown", one)
    calls.alter("delete what is not there", deleted=((one, SHA_256),))
    calls.alter("one", upserted=((one, SHA_256, 4_096),))
    calls.describe("one", one)
    calls.alter("again, otherwise", upserted=((one, SHA_256, 8_192),))
    calls.alter("both mechanisms of two", upserted=tuple((name, each, 4_096) for name in (one, two) for each in (1, 2)))
    calls.describe("all", of_all=True)
    calls.describe("an empty list")
    calls.describe("named, unknown, twice, empty", two, "scram-user-9", one, one, "")
    calls.alter("least iterations", upserted=((one, SHA_512, 4_096),))
    calls.alter("most iterations", upserted=((one, SHA_512, 16_384),))
    calls.alter("too few and too many", upserted=((one, SHA_512, 4_095), (two, SHA_256, 16_385)))
    calls.alter("unknown mechanisms", upserted=((one, 0, 4_096), (two, 3, 4_096)))
    calls.alter("delete of unknown mechanisms", deleted=((one, 0), (two, 77)))
    calls.alter("no name", deleted=(("", SHA_256),), upserted=(("", SHA_256, 4_096),))
    calls.alter("twice", upserted=((one, SHA_256, 4_096), (one, SHA_256, 4_096)))
    calls.alter("delete and upsert of one mechanism", deleted=((one, SHA_256),), upserted=((one, SHA_256, 4_096),))
    calls.alter("delete of one and upsert of the other", deleted=((one, SHA_256),), upserted=((one, SHA_512, 4_096),))
    calls.describe("one mechanism left", one)
    calls.alter("delete of two, of which one is not there", deleted=((one, SHA_256), (one, SHA_512)))
    calls.alter("a good and a bad one", deleted=((two, SHA_256),), upserted=((one, SHA_256, 1),))
    calls.alter("the last ones", deleted=((one, SHA_512), (two, SHA_512)))
    calls.describe("nobody left", of_all=True)
    calls.describe("gone", one, two)
    calls.alter("nothing")
