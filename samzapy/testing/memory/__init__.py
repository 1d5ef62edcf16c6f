"""The world of a container in memory, with the manners of the real one.

The unpleasant manners are the point: gaps in offsets, open transactions, fenced producers, state of an older process.
"""
