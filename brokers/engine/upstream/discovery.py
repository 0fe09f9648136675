"""Looks up the brokers of the upstream cluster with their present addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from brokers.contract.upstream import Address
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from brokers.engine.upstream.connection import CLIENT_ID, UpstreamConnection, UpstreamLogin, UpstreamLost
from brokers.engine.upstream.versions import intersection

_METADATA_VERSION: Final = 4


async def find_brokers(bootstrap: Iterable[Address], login: UpstreamLogin) -> MetadataResponse:
    """Returns the upstream brokers, from the first bootstrap server that answers. Raises UpstreamLost."""
    reasons = []
    for address in bootstrap:
        try:
            return await _request_brokers(address, login)
        except UpstreamLost as error:
            reasons.append(str(error))
    raise UpstreamLost(f"no upstream broker answers: {'; '.join(reasons)}")


def addresses_of(metadata: MetadataResponse) -> dict[int, Address]:
    """Returns the addresses of the upstream brokers by node id."""
    return {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}


async def _request_brokers(address: Address, login: UpstreamLogin) -> MetadataResponse:
    connection = await UpstreamConnection.open(address, login)
    try:
        low, high = intersection(connection.versions).get(ApiKey.METADATA, (0, -1))
        if not low <= _METADATA_VERSION <= high:
            raise UpstreamLost(f"{address[0]}:{address[1]} does not serve version {_METADATA_VERSION} of Metadata")
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        body = encode_request(ApiKey.METADATA, _METADATA_VERSION, request)
        frame, start = await connection.exchange(ApiKey.METADATA, _METADATA_VERSION, CLIENT_ID, body)
        response: MetadataResponse = decode_response(ApiKey.METADATA, _METADATA_VERSION, frame, start, len(frame))
        return response
    except MalformedRequest as error:
        raise UpstreamLost(f"{address[0]}:{address[1]} sent a malformed response") from error
    finally:
        connection.close()
