"""Headers that differ in a few values only: templates of requests and of responses.

May import of `protocol`: records, remoting.
"""
