"""A task's journal and its requests at a broker of ours, on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from roquet.client._net.session import Session
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.config import ClientConfig
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.broker import MasterRequests
from tests.client.served import NAME_SERVER, Served
from tests.simulation.simulation import Simulation

T = TypeVar("T")
OPTIONS: Final = WriteOptions(
    NAME_SERVER, "T", delivery=DeliveryGuarantee.EFFECTIVELY_ONCE, timeout_ms=1000, batch_rows=5
)


@contextmanager
def served(**settings: object) -> Iterator[Served]:
    with Simulation("sink") as sim:
        yield Served(sim, **settings)


def asking(cluster: Served, work: Callable[[MasterRequests], Awaitable[T]]) -> T:
    """Do `work` with the requests of a write."""

    async def run() -> T:
        config = ClientConfig(NAME_SERVER, client_id="sink", runtime=cluster.client.runtime())
        async with Session(config) as session:
            keys = UniqueKeys.of_client(session.client_id, session.runtime)
            return await work(MasterRequests(session, TopicRoutes(session), keys, OPTIONS))

    return cluster.run(run)
