"""FILES: the commit log, and the queues and index that dispatch derives from it. No sockets, no tasks.

May import: protocol.
"""
