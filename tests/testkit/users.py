"""Users of an instance, created over the internal listener in the way of the control plane."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.contract.users import ITERATIONS, scram_salt
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.users import AddedUserSecret, AddedVerifier, AlteredUser, AlterUsersRequest
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.scram import salted_password
from tests.testkit.wire import WireClient


def user_addition(name: str, *passwords: str, instance_id: str = "ins-aaaaaaaa", **fields: Any) -> AlteredUser:
    """Returns a change that adds a user with a secret for each password."""
    unchanged_fields = {"superuser": -1, "disabled": -1, "expires_at_ms": -2}
    return AlteredUser(
        name=name,
        added_secrets=[
            AddedUserSecret(
                id=f"of-{password}",
                verifiers=[
                    AddedVerifier(
                        mechanism=mechanism,
                        iterations=ITERATIONS,
                        salt=scram_salt(instance_id, name, mechanism),
                        salted_password=salted_password(
                            password, scram_salt(instance_id, name, mechanism), ITERATIONS, mechanism
                        ),
                    )
                    for mechanism in (1, 2)
                ],
            )
            for password in passwords
        ],
        **(unchanged_fields | fields),
    )


def call_as_control_plane(
    cluster: EngineCluster, instance: TestInstance, api_key: int, version: int, request: Any
) -> Any:
    """Sends a request in the way of the control plane, in the name of the instance."""

    async def ask() -> Any:
        client = await WireClient.connect(cluster.brokers[0].settings.internal_port)
        try:
            assert (await client.log_in(instance.id, cluster.secret)).error_code == 0
            return await client.call(api_key, version, request)
        finally:
            await client.close()

    return asyncio.run(ask())


def alter_users(cluster: EngineCluster, instance: TestInstance, *users: AlteredUser) -> None:
    answer = call_as_control_plane(cluster, instance, ApiKey.ALTER_USERS, 0, AlterUsersRequest(alterations=list(users)))
    assert [result.error_code for result in answer.results] == [0] * len(users), answer
