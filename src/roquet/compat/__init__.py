"""The APIs of other clients, on top of `roquet.sync`: programs move by changing an import.

`rocketmq` has the one of rocketmq-client-python.

May import: client, protocol, sync.
"""
