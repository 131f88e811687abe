"""What others are told of a table: metrics for whoever draws them, notices for people."""
