from __future__ import annotations

import pytest

from samzapy.testing.builders import a_container


@pytest.mark.parametrize(
    ("host", "boot_id", "is_shared"),
    [
        ("host-a", "boot.4026531836", True),
        # Another container of the machine has pids of its own, and finds the same directories.
        ("host-a", "boot.4026532666", True),
        ("host-a", "before.4026531836", False),
        ("host-b", "boot.4026531836", False),
    ],
)
def test_containers_of_one_host_and_boot_share_directories(host: str, boot_id: str, is_shared: bool) -> None:
    one = a_container("e1", host="host-a", boot_id="boot.4026531836")

    assert is_shared is one.shares_host_with(a_container("e2", host=host, boot_id=boot_id))
