"""Dispatch: turns new records of the log into entries of consume queues and index.

May import of `storage`: index, log, queues.
"""
