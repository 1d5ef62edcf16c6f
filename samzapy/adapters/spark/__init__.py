"""All that imports PySpark, without its warning of pandas 3."""

import warnings

# Spark 4.2 warns of pandas 3 when a session starts. `mapInArrow` uses Arrow batches alone.
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
