"""One browser for the tests of a file."""

import pytest

from unit_tests.fixtures.browser import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser
