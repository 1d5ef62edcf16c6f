"""Writes the hashes of a lock list anew.

    .venv/bin/python scripts/lock_jars.py LIST

To move to another version, edit the versions in the list first (the old hashes may stay) and run this. The jars of
a release are in its poms: run `mvn dependency:list -DincludeScope=runtime` on a pom that wants that one artifact.
The lock has the hashes that the repository serves, so read the diff before you commit it.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from samzapy.adapters.maven.fetch import ivy_file, run_ivy
from samzapy.adapters.maven.locks import parse_lock


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lock_path = Path(sys.argv[1])
    text = lock_path.read_text(encoding="utf-8")
    jars = parse_lock(text, origin=str(lock_path))
    heading = [line for line in text.splitlines() if line.startswith("#")]
    with tempfile.TemporaryDirectory() as staging:
        ran = run_ivy(ivy_file(jars), Path(staging))
        if ran.returncode != 0:
            print(ran.stdout, file=sys.stderr)
            return 1
        files = [Path(staging) / "out" / jar.group / jar.file_name for jar in jars]
        hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    lines = [f"{jar.coordinates} {sha256}" for jar, sha256 in zip(jars, hashes, strict=True)]
    lock_path.write_text("\n".join([*heading, *lines]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
