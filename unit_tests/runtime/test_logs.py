"""The log of a process: its formats, and the fields of JSON lines."""

import json
import logging
import sys

import pytest

from samzapy.errors import ConfigError
from samzapy.runtime import logs
from samzapy.runtime.logs import FORMAT_VARIABLE, JsonFormatter, choose_format, identify, log_to_stderr


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(logs, "_context", {})
    # Without the first line nothing is restored after a test that sets the variable.
    monkeypatch.setenv(FORMAT_VARIABLE, "")
    monkeypatch.delenv(FORMAT_VARIABLE)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers, root.level = handlers, level


def no_handlers():
    """Remove those of pytest, which come after the fixtures."""
    logging.getLogger().handlers = []


def written(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_line_of_json_has_the_message_and_the_identity_of_its_process(capsys):
    no_handlers()
    log_to_stderr({FORMAT_VARIABLE: "json"})
    identify(job="flights-1", processor="0", execution="0-8f")

    logging.getLogger("samzapy.a").warning("%d records", 7, extra={"task": "Partition_3"})

    (line,) = [json.loads(line) for line in written(capsys)]
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "samzapy.a",
        "message": "7 records",
        "job": "flights-1",
        "processor": "0",
        "execution": "0-8f",
        "task": "Partition_3",
    }


def test_the_run_and_the_generation_of_a_line_are_those_of_its_moment(capsys):
    no_handlers()
    log_to_stderr({FORMAT_VARIABLE: "json"})

    for generation in (3, 4):
        identify(run="17-8f", generation=generation)
        logging.getLogger("samzapy.a").warning("hello")

    lines = [json.loads(line) for line in written(capsys)]
    assert [(line["run"], line["generation"]) for line in lines] == [("17-8f", 3), ("17-8f", 4)]


def test_a_message_with_line_ends_and_a_trace_is_still_one_line(capsys):
    no_handlers()
    log_to_stderr({FORMAT_VARIABLE: "json"})
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("samzapy.a").exception("failed\nhere")

    (line,) = [json.loads(line) for line in written(capsys)]
    assert "failed\nhere" == line["message"]
    assert "ValueError: a\nb" in line["exception"]


def test_text_is_the_default(capsys):
    no_handlers()
    log_to_stderr({})

    logging.getLogger("samzapy.a").warning("hello")

    (line,) = written(capsys)
    assert line.endswith("WARNING samzapy.a: hello")


def test_another_format_is_refused():
    no_handlers()
    with pytest.raises(ConfigError, match="wanted text or json, found 'xml'"):
        log_to_stderr({FORMAT_VARIABLE: "xml"})


def test_a_chosen_format_counts_for_child_processes_too(capsys):
    no_handlers()
    log_to_stderr({})
    choose_format("json", "%(message)s", logging.INFO)

    logging.getLogger("samzapy.a").info("hello")

    assert "hello" == json.loads(written(capsys)[0])["message"]
    assert "json" == logs.os.environ[FORMAT_VARIABLE]


def test_logging_that_the_job_has_set_up_stays():
    no_handlers()
    own = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(own)

    log_to_stderr({FORMAT_VARIABLE: "json"})

    assert [own] == logging.getLogger().handlers
    assert not isinstance(own.formatter, JsonFormatter)
