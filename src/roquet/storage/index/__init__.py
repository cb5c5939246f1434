"""The index: finds messages by key and store time.

May import of `storage`: files, log.
"""
