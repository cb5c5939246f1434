"""The broker: answers requests, runs background tasks.

`components` builds and connects the parts, `handler_table` maps request codes to handlers,
`background` lists the background tasks, `server` starts and stops all of them.

May import: protocol, replication, storage, transport.
"""
