"""Header templates: requests and responses whose headers differ in a few values only.

May import of `protocol`: records, remoting.
"""
