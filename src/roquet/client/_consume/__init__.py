"""Consuming: rebalance, pulls, process queues, offsets, order locks.

May import of `client`: _net, _send, received.
"""
