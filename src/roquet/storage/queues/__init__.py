"""Consume queues: entries, extension units, all queues of a store.

May import of `storage`: files, log.
"""
