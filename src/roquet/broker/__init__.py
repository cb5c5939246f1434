"""The broker: requests in, responses out, background tasks.

`components` wires the parts, `handler_table` maps request codes to handlers, `background` lists the tasks.

May import: protocol, replication, storage, transport.
"""
