"""The part of a container that runs in Spark's Python workers."""
