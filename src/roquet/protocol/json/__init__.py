"""JSON as fastjson writes and reads it: the dialect, Java's number ranges, large texts in slices.

May import of `protocol`: nothing.
"""
