"""What `pip install samzapy` brings, and what it must."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_spark_asks_for_at_the_first_batch_comes_with_a_plain_install() -> None:
    """`mapInArrow` ends a query that finds no pandas, though it hands over Arrow batches alone."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    names = re.findall(r"^([a-z][a-z0-9-]*)", setup["options"]["install_requires"], re.MULTILINE)

    assert {"pandas", "pyarrow", "pyspark"} <= set(names)
