"""Settings of all property tests: how long an example takes says nothing on a machine that is shared."""

from hypothesis import settings

settings.register_profile("samzapy", deadline=None)
settings.load_profile("samzapy")
