"""Messages and the records that store them: single records, blocks of records, columns.

May import of `protocol`: remoting.
"""
