"""A fuzzing target for each reader, guided by its input's branches (Atheris).

    python -m unit_tests.hostile.fuzz properties 60

looks for a minute for bytes that the reader of properties files neither reads nor refuses. It begins from the good
bytes of the codec and from `corpus/<codec>/`. An input that breaks a reader is written to a file, whose path is shown:
move it into the corpus, where a test reads it from then on.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["samzapy"], enable_loader_override=False):
    from unit_tests.hostile.assault import Figures, codec_of, is_refused
    from unit_tests.hostile.codec import record_of, seeds
    from unit_tests.hostile.codecs import CODECS

_CORPUS = Path(__file__).with_name("corpus")
_MEMORY_MB_MAX = 2048
_INPUT_S_MAX = 10


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        sys.stdout.write("".join(f"{codec.name}\n" for codec in CODECS))
        return
    name, seconds = arguments
    codec = codec_of(name)

    def read(data: bytes) -> None:
        # The limits on time and growth are libFuzzer's own here.
        is_refused(codec, record_of(codec, data), Figures(codec=codec.name))

    begun = Path(tempfile.mkdtemp(prefix=f"samzapy-fuzz-{name}-"))
    for number, seed in enumerate(seeds(codec)):
        (begun / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-rss_limit_mb={_MEMORY_MB_MAX}", f"-timeout={_INPUT_S_MAX}"]
    kept = [str(_CORPUS / name)] if (_CORPUS / name).is_dir() else []
    # libFuzzer writes new inputs into the first directory only.
    atheris.Setup(
        [sys.argv[0], str(begun), *kept, *options, f"-artifact_prefix={begun}/broken-", "-verbosity=1"], read
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
