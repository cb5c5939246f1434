"""Converts stored records to Arrow columns.

May import of `spark`: _options.
"""
