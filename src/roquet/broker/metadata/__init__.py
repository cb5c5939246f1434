"""Topics, consumer groups, group members, filters, and the files in which the tables are saved.

May import of `broker`: config.
"""
