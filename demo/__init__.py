"""All flights out of New York in 2013 through a cluster of one's own, and Spark's answer checked
against the file's.
"""
