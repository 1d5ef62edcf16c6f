"""The version of samzapy.

setup.cfg, the command line and the term record read it here.

0.1.0 is the first release; `samzapy job downgrade --to 0.1.0` writes its formats. So no later state is called 0.1.0.
"""

from __future__ import annotations

__version__ = "0.2.0"

FIRST_RELEASE = "0.1.0"
