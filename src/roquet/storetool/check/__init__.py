"""Checks of a store's files, one module per kind of file.

May import of `storetool`: files, read, state.
"""
