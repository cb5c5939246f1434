"""The asyncio client: producers, consumers of a group, and plain access to queues."""
