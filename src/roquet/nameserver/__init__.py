"""Where brokers say that they live, and clients ask who has a topic."""
