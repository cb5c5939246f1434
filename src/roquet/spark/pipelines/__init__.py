"""Jobs on topics: each a function that takes a SparkSession and what it is to do, as a frozen dataclass."""
