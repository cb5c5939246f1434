"""Sending: encoded messages, batches, the choice of a queue, retries.

May import of `client`: _net, send_result.
"""
