"""Where tasks run: in this process, or in the Python workers of Spark."""
