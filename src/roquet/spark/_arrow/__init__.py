"""Records as Arrow columns.

May import of `spark`: _options.
"""
