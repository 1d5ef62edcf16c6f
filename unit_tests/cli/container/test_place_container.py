"""The options of `container place`.

Other tests show that a request moves tasks.
"""

import pytest
from click.testing import CliRunner

from samzapy.cli.config import config
from samzapy.cli.container.place_container import joined, main
from samzapy.cli.target.address import BOOTSTRAP_SERVERS

GIVEN = ["--deployment-id", "1-00000000", "--app-name", "flights", "--processor-id", "4", "--destination-host", "b"]


@pytest.mark.parametrize("app_id", [["--app.id", "1"], ["--app.id=1"], ["--app.id", "=", "1"]])
def test_the_app_id_may_be_written_in_three_ways(app_id):
    assert ["--app.id=1"] in (joined(app_id), ["=".join(joined(app_id))])
    assert [*joined(app_id), "--request-expiry", "10"] == joined([*app_id, "--request-expiry", "10"])


def test_an_equals_sign_that_follows_no_option_stays_where_it_is():
    assert ["a", "=", "b"] == joined(["a", "=", "b"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (GIVEN, 2, "wanted --config FILE, or --job NAME-ID with --bootstrap-servers"),
        (GIVEN[2:], 2, "--deployment-id"),
        (
            [*GIVEN, "--app.id", "=", "--bootstrap-servers", "127.0.0.1:1"],
            2,
            "wanted a value behind `--app.id =`, found the option --bootstrap-servers",
        ),
        ([*GIVEN, "--app.id", "="], 2, "wanted a value behind `--app.id =`, found nothing"),
        ([*GIVEN, "--request-expiry", "0"], 2, "--request-expiry"),
        ([*GIVEN, "--request-expiry", "1e14"], 2, "--request-expiry"),
        (
            [*GIVEN, "--bootstrap-servers", "127.0.0.1:1", "--processor-id", "a b"],
            2,
            "processorId: wanted a text like",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_their_names(arguments, code, message, capsys, monkeypatch):
    monkeypatch.delenv(BOOTSTRAP_SERVERS, raising=False)

    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert code == ended.value.code
    assert message in capsys.readouterr().err


def test_the_variable_that_names_the_cluster_is_in_no_other_command_s_way(monkeypatch):
    monkeypatch.setenv(BOOTSTRAP_SERVERS, "127.0.0.1:1")

    assert 0 == CliRunner().invoke(config, ["explain", "job.name"]).exit_code
