"""Readers of a store's files that need no `Store`: log, queues and index as rows or columns.

May import of `storetool`: files.
"""
