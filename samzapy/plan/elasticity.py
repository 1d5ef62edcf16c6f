"""The key bucket of a message: the unit below the partition that makes tasks.

The JVM filters each record by this rule before anything is decoded, and Python uses the same rule to take
its entries from a changelog, so both must agree to the bit: Spark's `xxhash64` and `xxhash` do (same seed).
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

from samzapy.model.ssp import check_factor

XXHASH_SEED = 42
"""The seed of Spark's `xxhash64`; it cannot be chosen there."""


def key_bucket(key: bytes | None, offset: int, factor: int) -> int:
    """Which of an SSP's `factor` buckets a message belongs to.

    Every message of one key falls into one bucket, so order per key survives any factor.

    Args:
        key: the message key exactly as on the topic, not decoded; `None` when the message has none. An empty
            key is a key.
        offset: the message's offset, used only without a key. Keyless messages spread by offset.
        factor: buckets per SSP, a power of two from 1 to 256; 1 means "not elastic".

    Returns:
        A bucket in `range(factor)`. With `b = key_bucket(k, o, f)`, `key_bucket(k, o, 2 * f)` is `b` or
        `b + f`: a bucket splits into exactly two, and two of them merge back into one.

    Raises:
        ValueError: `factor` is not a power of two from 1 to 256.

    Source: SEP-32. On purpose unlike Samza 1.8, which hashes the decoded key (for byte[] its identity, so
    two processes disagree). Not murmur2 and not crc32 either: producers choose the partition by those, and
    within one partition the same hash again would leave buckets empty.
    """
    check_factor(factor)
    if key is None:
        return offset % factor
    # Spark's value is a signed long taken with `pmod`. For a power of two that is the unsigned value's rest.
    return xxh64_intdigest(key, XXHASH_SEED) % factor
