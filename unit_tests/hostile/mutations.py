"""Good bytes, as changed by an attacker or a bad disk."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_TOO_LONG = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""A length in Avro's spelling that promises 2^63 - 1."""

_JSON_PIECES = (
    b"[" * 20_000,
    b'{"a":' * 5_000,
    b"9" * 5_000,
    b"-0.0",
    b"1e400",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
    b'"\\u0000"',
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b',"job":"flights-1"',
    b'"x"' * 3,
    b"9223372036854775808",
    b"-1",
)


def mutated_avro(value: bytes, chance: Random) -> bytes:
    """Flips, cuts, swells, and false lengths; the fingerprint mostly stays."""
    mutant = bytearray(value)
    first = 0 if chance.random() < 0.1 else 10
    for _ in range(chance.choice([1, 1, 2, 5])):
        place = chance.randrange(first, len(mutant)) if len(mutant) > first else 0
        match chance.randrange(6):
            case 0:
                mutant[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del mutant[place:]
            case 2:
                mutant[place:place] = chance.randbytes(chance.randrange(1, 20))
            case 3:
                mutant[place : place + 1] = _TOO_LONG
            case 4:
                mutant[place:place] = bytes(chance.randrange(1, 2_000))
            case _:
                del mutant[place : place + chance.randrange(1, 9)]
    return bytes(mutant)


def mutated_json(value: bytes, chance: Random) -> bytes:
    """Flips, cuts, doubled or moved parts, and pieces that break a careless reader."""
    return _mutated(value, chance, _JSON_PIECES, replaced_max=11)


def _mutated(value: bytes, chance: Random, pieces: Sequence[bytes], replaced_max: int) -> bytes:
    mutant = bytearray(value)
    for _ in range(chance.choice([1, 1, 2, 5])):
        place = chance.randrange(len(mutant)) if mutant else 0
        match chance.randrange(6):
            case 0:
                mutant[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del mutant[place:]
            case 2:
                mutant[place:place] = mutant[place : place + chance.randrange(1, 60)]
            case 3:
                mutant[place : place + chance.randrange(replaced_max + 1)] = chance.choice(pieces)
            case 4:
                mutant[place:place] = chance.randbytes(chance.randrange(1, 20))
            case _:
                del mutant[place : place + chance.randrange(1, 9)]
    return bytes(mutant)


def mutated_key(key: bytes, chance: Random) -> bytes:
    """As `mutated_json`, and slashes, numbers in other spellings, endless names."""
    if chance.random() < 0.5:
        return mutated_json(key, chance)
    place = chance.randrange(len(key) + 1)
    piece = chance.choice([b"/", b"//", b"0", b"00", b".", b":", b"@", b"#", b"\x00", b"\xc2\xb2", b"x" * 5_000])
    return key[:place] + piece + key[place + chance.randrange(3) :]


_BINARY_PIECES = (
    b"",
    b"\x00",
    b"\x00\x01",
    b"\xff",
    b"\xdd\xff\xff\xff\xff",  # MessagePack: an array, a map and bytes of 2^32 - 1.
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xd9\x01\xff",  # Text that is no UTF-8.
    b"\xd7\xff" + b"\xff" * 8,  # A moment that is none.
    b"\x91" * 5_000,
    b"\x81" * 5_000,
)


def mutated_binary(value: bytes, chance: Random) -> bytes:
    """Mutations of `mutated_json` with pieces that lie about what follows."""
    return _mutated(value, chance, _BINARY_PIECES, replaced_max=5)


_PROPERTIES_PIECES = (
    b"\\u",
    b"\\ud800",
    b"\\\n",
    b"${env:}",
    b"${env:NOT_SET}",
    b"job.name=x\n" * 3,
    b"a" * 5_000,
    b"9" * 5_000,
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"=\n",
    b"\x00",
    b"(((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+$",
    b"task.inputs=kafka.(a|b|",
)


def mutated_properties(value: bytes, chance: Random) -> bytes:
    """Mutations of `mutated_json`, and parts of a properties file.

    The parts are escapes, continued lines, variables and patterns.
    """
    if chance.random() < 0.5:
        return mutated_json(value, chance)
    place = chance.randrange(len(value) + 1)
    return value[:place] + chance.choice(_PROPERTIES_PIECES) + value[place + chance.randrange(3) :]
