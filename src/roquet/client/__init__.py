"""The asyncio client: producers, consumers of a group, and direct access to queues.

Modules without an underscore are what `roquet` exports.

May import: protocol, transport.
"""
