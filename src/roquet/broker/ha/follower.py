"""A slave's side of replication: the HA stream for the log, requests for the tables."""

from __future__ import annotations

from roquet.broker.ha.slave_sync import SlaveSync
from roquet.replication.client import HaClient
from roquet.storage.store import Store


class MasterFollower:
    """Lets a slave follow its master: `client` copies the log, `sync` copies the tables.

    Invariant: with a configured address the HA client follows that one only. It follows none once a
    sync of the store has failed.

    :param configured: the HA address of the master (`haMasterAddress`); None if name servers are
        asked for it. See docs/storage/replication.md#how-a-slave-finds-its-master.
    """

    def __init__(
        self, client: HaClient, sync: SlaveSync, store: Store, configured: str | None
    ) -> None:
        self.client = client
        self.sync = sync
        self._store = store
        self._configured = configured

    def start(self) -> None:
        """Follow the configured master; without one, wait for `master_known`."""
        self.client.set_master(self._configured)

    def master_known(self, ha_address: str | None, address: str | None) -> None:
        """Follow the master that a name server named."""
        self.sync.set_master(address)
        if self._store.failure is not None:
            return
        if self._configured is None and ha_address is not None:
            self.client.set_master(ha_address)

    async def close(self) -> None:
        """Close the HA stream."""
        await self.client.close()

    def stop_copying_log(self) -> None:
        """Copy no more of the master's log; the tables are still copied."""
        self.client.set_master(None)
