"""Files of a store: folders, segments, mapped files, the lock, and the rule for failed syncs.

May import of `storage`: nothing.
"""
