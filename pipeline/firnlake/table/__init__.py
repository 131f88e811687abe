"""A topic's table in Kafka's terms: columns, policy, segments, levels, commits, the state of a topic partition."""
