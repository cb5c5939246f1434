"""A store's files read without a store: log, queues and index as rows or columns.

May import of `storetool`: files.
"""
