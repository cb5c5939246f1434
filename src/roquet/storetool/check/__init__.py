"""Checks a store's files: log, consume queues, index and checkpoint, one module for each.

May import of `storetool`: files, read, state.
"""
