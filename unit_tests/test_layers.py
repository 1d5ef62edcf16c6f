from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_the_packages_know_only_what_lies_below_them() -> None:
    """The contracts stand in `setup.cfg`; the output names the import that breaks one."""
    ran = subprocess.run(
        [sys.executable, "-c", LINT, "--config", "setup.cfg", "--no-logo", "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout
