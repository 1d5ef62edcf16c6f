"""Inputs that grow, disappear, or no longer match their topic."""
