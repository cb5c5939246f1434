"""`roquet store`: check, list, print and rebuild the files of a store.

May import of `cli`: output, values.
"""
