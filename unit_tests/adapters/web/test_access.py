"""Access to the coordinator's HTTP port: credentials, TLS, client certificates."""

import base64
import json
import socket
import ssl
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

import pytest

from samzapy.adapters.web.access import Access
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.guard import Guard
from samzapy.adapters.web.server import ServerAccess
from samzapy.adapters.web.tls import TlsFiles, client_context
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.credential import Scope, credential
from samzapy.testing.waiting import wait_until
from unit_tests.adapters.web.test_server import IDLE, Job
from unit_tests.fixtures.certificates import Authority
from unit_tests.fixtures.operated_page import MemoryOperations

OLD, NEW, JOB = "o" * 32, "n" * 32, "flights-1"
PATHS = {
    ("GET", "/containerHeartbeat?executionContainerId=e1"): Scope.HEARTBEAT,
    ("GET", "/status"): Scope.READ,
    ("GET", "/jobModel"): Scope.READ,
    ("GET", "/metrics"): Scope.READ,
    ("GET", "/ui/requests"): Scope.READ,
    ("GET", "/ui/actions"): Scope.OPERATE,
    ("GET", "/ui/plan?action=restart&processor=0"): Scope.OPERATE,
    ("POST", "/ui/apply"): Scope.OPERATE,
}
FORM = {"Origin": "http://127.0.0.1", "Content-Type": "application/x-www-form-urlencoded"}


@contextmanager
def serving(**access):
    job = Job(access=ServerAccess(**access), operations=MemoryOperations())
    try:
        yield job
    finally:
        job.server.stop()


@pytest.fixture
def secrets():
    return [OLD]


@pytest.fixture
def job(secrets):
    with serving(guard=Guard(job=JOB, secrets=lambda: tuple(secrets))) as job:
        job.lead()
        yield job


def bearer(scope, name="someone", secret=OLD):
    return {"Authorization": f"Bearer {credential(secret, JOB, scope, name)}"}


def status_of(job, method, path, headers, body=None):
    target = urlsplit(job.url)
    connection = HTTPConnection(target.hostname, target.port, timeout=10)
    try:
        connection.request(method, path, body=body, headers={"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def client(secret=OLD, execution_id=None):
    return HttpCoordinatorClient(
        Access(heartbeat=lambda own: credential(secret, JOB, Scope.HEARTBEAT, execution_id or own))
    )


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("scope", Scope)
def test_a_route_answers_from_its_scope_on(job, method, path, scope):
    expected = PATHS[method, path]

    status = status_of(job, method, path, bearer(scope) | (FORM if method == "POST" else {}))

    assert (status == 403) == (scope < expected), f"{scope.text} got {status} for a route of scope {expected.text}"


@pytest.mark.parametrize(("method", "path"), [*PATHS, ("POST", "/containerHeartbeat")])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer read.someone.00"},
        {"Authorization": "Basic ???"},
        {"Authorization": "Basic \xe9"},
        {"Authorization": f"Bearer {credential(NEW, JOB, Scope.OPERATE, 'someone')}"},
        {"Authorization": f"Bearer {credential(OLD, 'flights-2', Scope.OPERATE, 'someone')}"},
        {"Cookie": f"token={credential(OLD, JOB, Scope.OPERATE, 'someone')}"},
    ],
    ids=["none", "empty", "wrong mac", "no base64", "no ascii", "another secret", "another job", "a cookie"],
)
def test_no_route_answers_without_a_valid_credential(job, method, path, headers):
    assert 401 == status_of(job, method, path, headers, json.dumps(IDLE) if method == "POST" else None)


@pytest.mark.parametrize(
    ("guard", "status"),
    [
        (Guard(job=JOB), 200),
        (Guard(job=JOB, is_exposed=True), 403),
        (Guard(job=JOB, wants_client_certificate=True), 403),
    ],
    ids=["loopback", "another address", "client certificate"],
)
def test_without_a_secret_actions_are_for_loopback_alone(guard, status):
    with serving(guard=guard) as job:
        job.lead()

        assert status == status_of(job, "GET", "/ui/actions", {})
        assert 200 == status_of(job, "GET", "/status", {})


def test_a_browser_may_send_the_credential_as_a_password(job):
    text = base64.b64encode(f"anyone:{credential(OLD, JOB, Scope.READ, 'someone')}".encode()).decode()

    assert 200 == status_of(job, "GET", "/status", {"Authorization": f"Basic {text}"})


def test_a_container_reports_for_its_own_execution_only(job):
    with job.looping():
        wait_until(lambda: client().heartbeat(job.url, IDLE, 20_000), 60, "e1 to be registered")

    assert client(execution_id="e2").heartbeat(job.url, IDLE, 20_000) is None
    assert 403 == status_of(job, "POST", "/containerHeartbeat", bearer(Scope.OPERATE, "e1"), json.dumps(IDLE))
    assert 2 == refused_requests(job)


def refused_requests(job):
    target = urlsplit(job.url)
    connection = HTTPConnection(target.hostname, target.port, timeout=10)
    connection.request("GET", "/metrics", headers=bearer(Scope.READ))
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    (line,) = [line for line in lines if line.startswith("samzapy_coordinator_refused_requests_total{")]
    return float(line.split()[-1])


def test_a_container_gets_a_credential_of_the_new_secret_before_the_old_one_is_removed(job, secrets):
    kept = [credential(OLD, JOB, Scope.HEARTBEAT, "e1")]
    own = HttpCoordinatorClient(
        Access(heartbeat=lambda execution_id: kept[0], renew=lambda renewed: kept.__setitem__(0, renewed))
    )
    with job.looping():
        wait_until(lambda: own.heartbeat(job.url, IDLE, 20_000), 60, "e1 to be registered")
        secrets[:] = [NEW, OLD]
        assert own.heartbeat(job.url, IDLE, 20_000).alive
        secrets[:] = [NEW]

        assert own.heartbeat(job.url, IDLE, 20_000).alive
    assert [credential(NEW, JOB, Scope.HEARTBEAT, "e1")] == kept
    assert client(secret=OLD).heartbeat(job.url, IDLE, 20_000) is None


def test_a_command_without_a_credential_is_refused_with_the_way_to_get_one(job):
    with pytest.raises(RejectedError, match="samzapy job token .*SAMZAPY_COORDINATOR_TOKEN"):
        HttpCoordinatorClient().status(job.url, JOB, 20_000)

    reading = HttpCoordinatorClient(Access(read=lambda: credential(OLD, JOB, Scope.READ, "commands")))
    assert JOB == reading.status(job.url, JOB, 20_000)["job"]


def test_a_name_with_capital_letters_is_also_answered_in_lower_case():
    names = ServerAccess(advertised_host="Node-7", allowed_hosts=["Jobs.example.org"]).names("0.0.0.0")

    assert {"Node-7", "node-7", "Jobs.example.org", "jobs.example.org", "0.0.0.0", "localhost"} <= set(names)


def test_a_credential_is_not_sent_to_another_host_in_clear_text(caplog):
    access = Access()

    assert {} == access.header("http://192.0.2.7:80", "read.a.b")
    assert "wanted https for a credential" in caplog.text
    assert {"Authorization": "Bearer read.a.b"} == access.header("http://127.0.0.1:80", "read.a.b")
    assert {"Authorization": "Bearer read.a.b"} == access.header("https://192.0.2.7:80", "read.a.b")
    assert {} != Access(sends_in_clear=True).header("http://192.0.2.7:80", "read.a.b")
    assert {} == access.header("http://[bad", "read.a.b")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority.made(tmp_path_factory.mktemp("certificates"))


def files_of(authority, name, *alternatives, **more):
    certificate, key = authority.certificate(name, *alternatives)
    return TlsFiles(certificate=str(certificate), key=str(key), ca=str(authority.ca), **more)


def trusting(authority, **own):
    return Access(tls=client_context(TlsFiles(ca=str(authority.ca), **own)).context)


def test_a_server_with_a_certificate_speaks_tls_only(authority):
    with serving(tls=files_of(authority, "node", "IP:127.0.0.1")) as job:
        job.lead()

        assert job.url.startswith("https://")
        assert JOB == HttpCoordinatorClient(trusting(authority)).status(job.url, JOB, 20_000)["job"]
        assert HttpCoordinatorClient().status(job.url.replace("https", "http"), JOB, 5_000) is None
        assert HttpCoordinatorClient().status(job.url, JOB, 5_000) is None


def test_a_certificate_of_another_authority_or_name_is_no_answer_and_is_named(authority, tmp_path, caplog):
    with serving(tls=files_of(authority, "elsewhere", "DNS:elsewhere.test")) as job:
        job.lead()
        assert HttpCoordinatorClient(trusting(authority)).status(job.url, JOB, 5_000) is None
        assert "IP address mismatch" in caplog.text

        assert HttpCoordinatorClient(trusting(Authority.made(tmp_path, "other"))).status(job.url, JOB, 5_000) is None
        assert (
            "self-signed certificate in certificate chain" in caplog.text
            or "unable to get local issuer" in caplog.text
        )


def test_a_replaced_certificate_is_shown_to_the_next_connection(authority, monkeypatch):
    monkeypatch.setattr("samzapy.adapters.web.server._TLS_LOOK_S", 0.05)
    files = files_of(authority, "renewed", "IP:127.0.0.1")
    with serving(tls=files) as job:
        before = _shown(job, authority)
        authority.certificate("renewed", "IP:127.0.0.1")

        wait_until(lambda: _shown(job, authority) != before, 20, "the new certificate")


def _shown(job, authority):
    target = urlsplit(job.url)
    context = ssl.create_default_context(cafile=str(authority.ca))
    connection = HTTPSConnection(target.hostname, target.port, context=context, timeout=10)
    try:
        connection.connect()
        return connection.sock.getpeercert()["serialNumber"]
    finally:
        connection.close()


def test_a_certificate_whose_key_does_not_fit_leaves_the_former_one_in_force(
    authority, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("samzapy.adapters.web.server._TLS_LOOK_S", 0.05)
    files = files_of(authority, "half", "IP:127.0.0.1")
    with serving(tls=files) as job:
        before = _shown(job, authority)
        other, _ = authority.certificate("another", "IP:127.0.0.1")
        (authority.directory / "half.pem").write_bytes(other.read_bytes())

        wait_until(lambda: "stay in force" in caplog.text, 20, "the trouble to be named")
        assert before == _shown(job, authority)


def test_a_client_must_show_a_certificate_where_that_is_required(authority, tmp_path):
    with serving(
        guard=Guard(job=JOB, wants_client_certificate=True),
        tls=files_of(authority, "server", "IP:127.0.0.1", wants_client_certificate=True),
    ) as job:
        job.lead()
        certificate, key = authority.certificate("client", "DNS:host-a")
        foreign, foreign_key = Authority.made(tmp_path, "foreign").certificate("client", "DNS:host-a")

        assert HttpCoordinatorClient(trusting(authority)).status(job.url, JOB, 5_000) is None
        stranger = trusting(authority, certificate=str(foreign), key=str(foreign_key))
        assert HttpCoordinatorClient(stranger).status(job.url, JOB, 5_000) is None
        own = trusting(authority, certificate=str(certificate), key=str(key))
        assert JOB == HttpCoordinatorClient(own).status(job.url, JOB, 20_000)["job"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_of_an_authority_that_was_removed_is_refused(version, authority, tmp_path, monkeypatch):
    monkeypatch.setattr("samzapy.adapters.web.server._TLS_LOOK_S", 0.05)
    successor, ca = Authority.made(tmp_path, "successor"), tmp_path / "ca.pem"
    ca.write_bytes(authority.ca.read_bytes())
    files = replace(files_of(authority, "server", "IP:127.0.0.1", wants_client_certificate=True), ca=str(ca))
    former, new = (_tls_client(of, authority, version) for of in (authority, successor))
    with serving(guard=Guard(job=JOB, wants_client_certificate=True), tls=files) as job:
        session = _session(job, former)
        assert session is not None
        assert _session(job, new) is None

        ca.write_bytes(successor.ca.read_bytes())

        wait_until(lambda: _session(job, former) is None, 20, "the removed authority to be refused")
        # A resumed session would not show the certificate again.
        assert _session(job, former, session) is None
        assert _session(job, new) is not None


def _tls_client(of, server_authority, version):
    context = ssl.create_default_context(cafile=str(server_authority.ca))
    context.load_cert_chain(*of.certificate("client", "DNS:host-a"))
    context.maximum_version = version
    return context


def _session(job, context, session=None):
    """The session of an answered request; None: the connection was refused."""
    target = urlsplit(job.url)
    with socket.create_connection((target.hostname, target.port), timeout=10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=target.hostname, session=session) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = connection.recv(4096)
                # The server forgets the session of a connection whose end the client does not read.
                while answer and connection.recv(4096):
                    pass
                return connection.session if answer else None
        except (ssl.SSLError, ConnectionError):
            return None


def test_a_client_certificate_speaks_for_containers_of_its_host_only(authority):
    with serving(
        guard=Guard(job=JOB, wants_client_certificate=True),
        tls=files_of(authority, "server", "IP:127.0.0.1", wants_client_certificate=True),
    ) as job:
        job.lead()
        clients = {}
        for host in (IDLE["host"], "another-host"):
            certificate, key = authority.certificate(f"of-{host}", f"DNS:{host}")
            clients[host] = HttpCoordinatorClient(trusting(authority, certificate=str(certificate), key=str(key)))

        with job.looping(), closing(clients[IDLE["host"]]) as own:
            wait_until(lambda: own.heartbeat(job.url, IDLE, 20_000), 60, "e1 to be registered")
            assert clients["another-host"].heartbeat(job.url, IDLE, 20_000) is None


def test_a_replaced_secret_and_authority_are_in_force_on_the_next_heartbeat_of_a_kept_connection(
    authority, tmp_path, secrets
):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.ca.read_bytes())
    given = [OLD]
    access = Access(
        heartbeat=lambda own: credential(given[0], JOB, Scope.HEARTBEAT, own),
        tls=client_context(TlsFiles(ca=str(ca))).context,
    )
    guard = Guard(job=JOB, secrets=lambda: tuple(secrets))
    with (
        serving(guard=guard, tls=files_of(authority, "kept", "IP:127.0.0.1")) as job,
        closing(HttpCoordinatorClient(access)) as own,
    ):
        job.lead()
        with job.looping():
            wait_until(lambda: own.heartbeat(job.url, IDLE, 20_000), 60, "e1 to be registered")
        assert own.heartbeat(job.url, IDLE, 20_000).alive
        secrets[:] = [NEW]
        assert own.heartbeat(job.url, IDLE, 20_000) is None
        given[0] = NEW
        assert own.heartbeat(job.url, IDLE, 20_000).alive

        # The client now trusts another authority: the connection that it made before proves nothing more.
        ca.write_bytes(Authority.made(tmp_path, "successor").ca.read_bytes())
        assert own.heartbeat(job.url, IDLE, 5_000) is None


@pytest.mark.parametrize("fault", ["missing", "no certificate", "another key", "a passphrase", "readable by all"])
def test_wrong_certificate_files_are_named(authority, tmp_path, fault):
    certificate, key = authority.certificate("faulty", "IP:127.0.0.1")
    if fault == "missing":
        key.unlink()
    elif fault == "no certificate":
        certificate.write_text("hello")
    elif fault == "another key":
        key.write_bytes(authority.certificate("another", "IP:127.0.0.1")[1].read_bytes())
    elif fault == "a passphrase":
        authority.encrypt(key)
    else:
        key.chmod(0o644)

    with pytest.raises(ConfigError, match=r"job\.coordinator\.tls\.(certificate|key)"):
        client_context(TlsFiles(certificate=str(certificate), key=str(key)))


def test_a_missing_authority_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"job\.coordinator\.tls\.ca: wanted a PEM file"):
        client_context(TlsFiles(ca=str(tmp_path / "ca.pem")))
