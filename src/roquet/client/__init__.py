"""The asyncio client: producers, group consumers and pull consumers.

`roquet` exports the public classes of the modules without an underscore.

May import: allocation, protocol, transport.
"""
