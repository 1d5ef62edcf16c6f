"""What holds for all tests, of whichever folder."""

pytest_plugins = ["integration_tests.support.run_times"]
