"""The read side: status, metrics, explanations and checks.

It decides nothing.
"""
