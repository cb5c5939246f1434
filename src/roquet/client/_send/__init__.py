"""Sending: encoded messages, batches, choice of a queue, retries.

May import of `client`: _net, counters, metrics, received, send_result.
"""
