"""The job's configuration: Samza's dotted keys, read once into a typed value.

Unknown keys are refused.

Looking for a key? `keys` lists them all, with type, default and meaning. Besides:

| file | contents |
|---|---|
| `keys` | the registry: every key, and the client properties that are refused |
| `sources` | where settings come from: file, environment, `--set`; the later one wins |
| `lookup` | a key's entry in the registry; whether a value may stand under it |
| `values` | values that are more than a text or a number: lists, stores, broadcast inputs |
| `parsing`, `checks` | properties become a `JobConfig`; the checks that compare several values |
| `job_config` | `JobConfig`, the typed value that the other packages receive |
| `recording` | the recorded part, and the differences between two configurations |
| `secrets` | which keys are secrets, and the type of their values, which is never shown |
| `explanation` | the effective value of a key, its source, and the sources that would override it |

Keys that begin with `spark.` belong to spark-submit and are refused here by name.
"""

from samzapy.config.checks import is_topic_name
from samzapy.config.explanation import Explanation, explain, keys_to_explain
from samzapy.config.job_config import (
    BATCH_BYTES,
    FRAME_BYTES,
    MESSAGE_BYTES_MAX,
    JobConfig,
    exposes_coordinator,
    is_loopback,
    is_pattern,
    pattern_of,
)
from samzapy.config.keys import (
    ALL_SSPS_TO_SINGLE_TASK,
    CLIENT_PROPERTIES_REFUSED,
    CLUSTER_MANAGERS,
    CORES_KEY,
    COUNT_KEY,
    FACTOR_KEY,
    FACTORS,
    KEY_SERDES,
    KEYS,
    KINDS,
    MEMORY_KEY,
    PARTITION_SCHEMES,
    REQUIRED,
    SCHEME_KEY,
    SERDES,
    STORE_SCOPES,
    WINDOW_KEY,
    ConfigKey,
)
from samzapy.config.lookup import is_id
from samzapy.config.parsing import parse_config, parse_recorded
from samzapy.config.properties_file import properties_text
from samzapy.config.recording import Difference, differences, recorded_properties
from samzapy.config.samza_keys import SAMZA_KEYS, SamzaKey
from samzapy.config.secrets import (
    SECRET,
    Secret,
    Text,
    is_reference,
    is_secret,
    refuse_open_file,
    refuse_secret_arguments,
    revealed,
    sounds_secret,
    without_secrets,
)
from samzapy.config.sources import Setting, Source, in_force, merge, read_properties
from samzapy.config.values import (
    AcceptedLoss,
    BroadcastInput,
    HostSlots,
    IntermediateStream,
    StoreConfig,
    accepted_loss,
    intermediate_topic,
    stores_of,
)

__all__ = [
    "ALL_SSPS_TO_SINGLE_TASK",
    "BATCH_BYTES",
    "CLIENT_PROPERTIES_REFUSED",
    "CLUSTER_MANAGERS",
    "CORES_KEY",
    "COUNT_KEY",
    "FACTORS",
    "FACTOR_KEY",
    "FRAME_BYTES",
    "KEYS",
    "KEY_SERDES",
    "KINDS",
    "MEMORY_KEY",
    "MESSAGE_BYTES_MAX",
    "PARTITION_SCHEMES",
    "REQUIRED",
    "SAMZA_KEYS",
    "SCHEME_KEY",
    "SECRET",
    "SERDES",
    "STORE_SCOPES",
    "WINDOW_KEY",
    "AcceptedLoss",
    "BroadcastInput",
    "ConfigKey",
    "Difference",
    "Explanation",
    "HostSlots",
    "IntermediateStream",
    "JobConfig",
    "SamzaKey",
    "Secret",
    "Setting",
    "Source",
    "StoreConfig",
    "Text",
    "accepted_loss",
    "differences",
    "explain",
    "exposes_coordinator",
    "in_force",
    "intermediate_topic",
    "is_id",
    "is_loopback",
    "is_pattern",
    "is_reference",
    "is_secret",
    "is_topic_name",
    "keys_to_explain",
    "merge",
    "parse_config",
    "parse_recorded",
    "pattern_of",
    "properties_text",
    "read_properties",
    "recorded_properties",
    "refuse_open_file",
    "refuse_secret_arguments",
    "revealed",
    "sounds_secret",
    "stores_of",
    "without_secrets",
]
