"""A message and the record that stores it: one by one, as a block, and in columns.

May import of `protocol`: remoting.
"""
