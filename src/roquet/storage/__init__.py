"""Store files: the commit log, and the consume queues and index that dispatch derives from it.

No sockets, no asyncio tasks.

May import: protocol.
"""
