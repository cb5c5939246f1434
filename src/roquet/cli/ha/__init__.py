"""`roquet ha`: show replication, promote a slave, let a former master rejoin.

May import of `cli`: access, configuration, output.
"""
