"""Alerts reach a webhook and a mail server, say nothing confidential, and never stop a release."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from tasks.alerts import delivery, schedules
from tasks.alerts.delivery import DELIVERED, deliver
from tasks.alerts.message import Alert
from tasks.alerts.occasions import alerting
from tasks.alerts.schedules import tell_missed
from tasks.boundary import StageFailed
from tasks.configuration.alerts import Alerts, Kind
from tasks.configuration.loading import ConfigurationError, load_configuration
from tasks.run import RunRef
from tasks.series import Series
from tasks.stages.prepare import prepare
from tests.tasks.inbox import Inbox, open_inbox

SECRET = "canary-4711"  # noqa: S105  (planted, to be found nowhere)
ALERT = Alert(Kind.FAILURE, "household-sizes", "2026-Q3", "ingest", "KeyError")


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with open_inbox(path=f"/hook?token={SECRET}") as inbox:
        yield inbox


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_SECONDS", (0.0, 0.0))


# --- webhook ----------------------------------------------------------------------------------


def test_a_webhook_gets_ids_the_class_of_the_error_and_the_command_to_run(inbox: Inbox) -> None:
    assert deliver(ALERT, Alerts(webhook=inbox.address)) == {"webhook": DELIVERED}
    [post] = inbox.posts
    assert (post["product"], post["release"]) == ("household-sizes", "2026-Q3")
    assert (post["alert"], post["stage"], post["error"]) == ("failure", "ingest", "KeyError")
    assert post["command"] == "pgsr status"
    assert "stopped in stage ingest: KeyError" in post["text"]


def test_a_webhook_in_trouble_is_tried_again_and_one_that_says_no_is_not(inbox: Inbox) -> None:
    settings = Alerts(webhook=inbox.address)
    inbox.answers = [503, 429]
    assert deliver(ALERT, settings) == {"webhook": DELIVERED}
    assert len(inbox.posts) == 3
    inbox.answers = [404]
    assert deliver(ALERT, settings) == {"webhook": "HTTP status 404"}
    assert len(inbox.posts) == 4
    inbox.answers = [302]  # a redirection could lead anywhere
    assert deliver(ALERT, settings) == {"webhook": "HTTP status 302"}


def test_the_address_may_be_in_the_environment_and_is_in_no_log(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Alerts(webhook="$OFFICE_WEBHOOK")
    assert DELIVERED not in deliver(ALERT, settings).values()
    monkeypatch.setenv("OFFICE_WEBHOOK", inbox.address)
    with caplog.at_level(logging.DEBUG):
        assert deliver(ALERT, settings) == {"webhook": DELIVERED}
        inbox.close()
        assert deliver(ALERT, settings) == {"webhook": "ConnectError"}
    assert SECRET not in caplog.text


# --- mail -------------------------------------------------------------------------------------


class Mailbox:
    """What a mail server was handed."""

    def __init__(self) -> None:
        self.letters: list[tuple[list[str], str]] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        self.letters.append((envelope.rcpt_tos, envelope.content.decode()))
        return "250 OK"


@contextmanager
def mail_server(**options: Any) -> Iterator[tuple[Mailbox, int]]:
    mailbox = Mailbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, ready_timeout=30, **options)
    controller.start()
    try:
        yield mailbox, port
    finally:
        controller.stop()


def email(port: int, **changes: Any) -> Alerts:
    fields = {"to": ["ops@example.org", "night@example.org"], "from": "pgsr@example.org"}
    return Alerts(
        email={**fields, "host": "localhost", "port": port, "security": "none", **changes}
    )


def test_mail_goes_to_everyone_with_the_release_in_its_subject() -> None:
    with mail_server() as (mailbox, port):
        assert deliver(ALERT, email(port)) == {"email": DELIVERED}
    [(to, letter)] = mailbox.letters
    assert to == ["ops@example.org", "night@example.org"]
    assert "Subject: [pgsr] failure: household-sizes/2026-Q3" in letter
    assert "See: pgsr status." in letter


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A mail server's certificate, and the file that makes it trusted."""
    folder = tmp_path_factory.mktemp("tls")
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, None)
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, folder / "cert.pem"


def test_mail_is_encrypted_with_a_password_from_the_environment(
    certificate: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate

    def authenticate(*found: Any) -> AuthResult:
        data = found[-1]
        good = isinstance(data, LoginPassword) and data.password == SECRET.encode()
        return AuthResult(success=good, handled=False)

    login = {"security": "starttls", "user": "pgsr", "password_env": "OFFICE_PASSWORD"}
    with mail_server(
        tls_context=context, require_starttls=True, auth_required=True, authenticator=authenticate
    ) as (mailbox, port):
        monkeypatch.setenv("OFFICE_PASSWORD", SECRET)
        # A stranger's certificate is not accepted, and the password not sent.
        assert deliver(ALERT, email(port, **login)) == {"email": "SSLCertVerificationError"}
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert deliver(ALERT, email(port, **login)) == {"email": DELIVERED}
        monkeypatch.setenv("OFFICE_PASSWORD", "wrong")
        assert deliver(ALERT, email(port, **login)) == {"email": "SMTPAuthenticationError"}
        monkeypatch.delenv("OFFICE_PASSWORD")
        assert "variable" in deliver(ALERT, email(port, **login))["email"]
    assert len(mailbox.letters) == 1


# --- configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"webhook": "ftp://example.org"},
        {"webhook": "https://user:password@example.org"},
        {"webhook": "$NOT A NAME"},
        {"webhook": "https://example.org", "on": ["sometimes"]},
        {"webhook": "https://example.org", "on": []},
        {"webhook": "https://example.org", "budget_below": "1"},
        {"webhook": "https://example.org", "extra": 1},
        {"email": {"to": "a@b.c\nBcc: x@y.z", "from": "a@b.c", "host": "h"}},
        {"email": {"to": "a@b.c", "from": "a@b.c", "host": "h\r\n"}},
        {"email": {"to": "a@b.c", "from": "a@b.c", "host": "h", "user": "u"}},
        {"email": {"to": "a@b.c", "from": "a@b.c", "host": "h", "password": "p"}},
        {
            "email": {
                **{"to": "a@b.c", "from": "a@b.c", "host": "h"},
                **{"user": "u", "password_env": "P", "security": "none"},
            }
        },
    ],
)
def test_alerts_that_cannot_work_or_would_tell_a_password_are_refused(settings: Any) -> None:
    with pytest.raises(ValidationError):
        Alerts.model_validate(settings)


def test_a_wrong_key_of_the_alerts_is_told_with_its_line(
    virginia_population: Path, tmp_path: Path
) -> None:
    path = tmp_path / "product.yaml"
    text = (virginia_population / "product.yaml").read_text()
    path.write_text(f"{text}alerts:\n  webhook: nonsense\n")
    with pytest.raises(ConfigurationError, match=r"line \d+: alerts.webhook"):
        load_configuration(path)


# --- occasions --------------------------------------------------------------------------------


@pytest.fixture
def ref(virginia_population: Path, tmp_path: Path, inbox: Inbox) -> RunRef:
    """A prepared release whose budget is nearly spent once it is measured."""
    folder = Path(shutil.copytree(virginia_population, tmp_path / "office"))
    path = folder / "product.yaml"
    text = path.read_text().replace("budget: '4'", "budget: '0.6'")
    assert "0.6" in text
    path.write_text(f'{text}alerts: {{webhook: "{inbox.address}"}}\n')
    return prepare(path, slot=date(2026, 1, 1))


def fail_with(ref: RunRef, error: Exception) -> None:
    with pytest.raises(type(error)), alerting(ref):
        raise error


def alerted(ref: RunRef) -> list[dict[str, Any]]:
    events = ref.ledger().events(ref.product, ref.release)
    return [dict(facts) for kind, facts in events if kind == "alerted"]


def test_a_stage_that_fails_and_a_gate_that_says_no_are_told_apart(
    ref: RunRef, inbox: Inbox
) -> None:
    fail_with(ref, StageFailed("ingest", "SourceChanged", 1))
    fail_with(ref, StageFailed("validate", "GateFailed", 1))
    told = [(post["alert"], post["stage"], post["error"]) for post in inbox.posts]
    assert told == [("failure", "ingest", "SourceChanged"), ("gate", "validate", "GateFailed")]
    sent = {"sent": {"webhook": "delivered"}}
    assert alerted(ref) == [{"alert": "failure", **sent}, {"alert": "gate", **sent}]


def test_no_text_of_an_error_and_no_address_is_told_logged_or_recorded(
    ref: RunRef, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        fail_with(ref, ValueError(f"person {SECRET} at /data/{SECRET}.csv"))
        inbox.answers = [500, 500, 500]
        fail_with(ref, StageFailed("ingest", "KeyError", None))
    assert len(inbox.posts) == 4
    assert SECRET not in json.dumps(inbox.posts)
    assert SECRET not in caplog.text
    assert SECRET not in json.dumps([dict(e.facts) for e in ref.ledger().timeline()])
    assert alerted(ref)[-1]["sent"] == {"webhook": "HTTP status 500"}


def test_an_alert_that_cannot_be_told_changes_nothing(
    ref: RunRef, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("tasks.alerts.occasions.deliver", explode)
    fail_with(ref, StageFailed("ingest", "KeyError", None))
    monkeypatch.setattr("tasks.alerts.occasions.tell_budget", explode)
    with alerting(ref):
        pass
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_a_run_that_fails_for_want_of_its_ledger_is_told_all_the_same(
    ref: RunRef, inbox: Inbox
) -> None:
    (Path(ref.home) / "ledger.sqlite").write_bytes(b"no database")
    fail_with(ref, StageFailed("recall", "LedgerUnavailable", 3))
    [post] = inbox.posts
    assert post["error"] == "LedgerUnavailable"


def test_a_budget_that_runs_out_is_told_once_for_each_release(ref: RunRef, inbox: Inbox) -> None:
    with alerting(ref):
        pass
    assert inbox.posts == []
    ledger = ref.ledger()
    ledger.account = lambda *_, **__: _account("0.5")  # type: ignore[method-assign, assignment]
    from tasks.alerts.occasions import tell_budget

    configuration = ref.open().plan.configuration
    inbox.answers = [400]  # not delivered, so it is told again
    assert tell_budget(ledger, configuration, ref.release)
    assert tell_budget(ledger, configuration, ref.release)
    assert not tell_budget(ledger, configuration, ref.release)
    assert len(inbox.posts) == 2
    post = inbox.posts[-1]
    assert (post["alert"], post["command"]) == ("budget", "pgsr budget --population virginia-2000")
    assert "0.5" not in json.dumps(post)


def _account(spent: str) -> Any:
    from pgsr_core.budget import Account

    return Account("virginia-2000", Fraction("0.6"), Fraction(spent))


def test_nothing_is_told_on_an_occasion_that_was_not_asked_for(ref: RunRef, inbox: Inbox) -> None:
    configuration = ref.open().plan.configuration
    quiet = configuration.model_copy(
        update={"alerts": Alerts(on=[Kind.BUDGET], webhook=inbox.address)}
    )
    with pytest.raises(ValueError, match="x"), alerting(ref, quiet):
        raise ValueError("x")
    silent = configuration.model_copy(update={"alerts": None})
    with pytest.raises(ValueError, match="x"), alerting(ref, silent):
        raise ValueError("x")
    assert inbox.posts == []


# --- missed schedules -------------------------------------------------------------------------


@pytest.fixture
def series(virginia_population: Path, tmp_path: Path, inbox: Inbox) -> Series:
    """A product that is due every hour, and was put on schedule in this very moment."""
    folder = Path(shutil.copytree(virginia_population, tmp_path / "hourly"))
    path = folder / "product.yaml"
    text = path.read_text().replace("release: synthetic-1", 'release: "{date:%Y-%m-%dT%H}"')
    path.write_text(
        f'{text}schedule: {{cron: "0 * * * *", catch_up: none}}\n'
        f'alerts: {{webhook: "{inbox.address}", missed_after: 20}}\n'
    )
    series = Series.open(path)
    series.put_on_schedule()
    return series


def test_a_release_that_is_overdue_is_told_once_whatever_the_policy(
    series: Series, inbox: Inbox
) -> None:
    since = series.put_on_schedule()
    assert since is not None
    due = (since + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    assert tell_missed(series, now=since) is None
    assert tell_missed(series, now=due + timedelta(minutes=19)) is None
    for _ in range(2):
        overdue = tell_missed(series, now=due + timedelta(minutes=21))
        assert overdue == series.release(due)
    [post] = inbox.posts
    assert (post["alert"], post["release"]) == ("missed", series.release(due).release)
    series.ledger.record("published", series.product, series.release(due).release)
    assert tell_missed(series, now=due + timedelta(minutes=21)) is None


def test_the_check_for_a_timer_ends_with_1_where_something_is_overdue(
    series: Series, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from flows.cli.app import app

    check = ["alerts", "check", str(series.loaded.path), "--json"]
    assert json.loads(CliRunner().invoke(app, check).stdout) == {"overdue": None}
    moment = datetime.now(UTC) + timedelta(hours=3)
    tell = schedules.tell_missed
    monkeypatch.setattr(schedules, "tell_missed", lambda series: tell(series, now=moment))
    late = CliRunner().invoke(app, check)
    assert late.exit_code == 1
    assert [json.loads(late.stdout)["overdue"]] == [
        f"{post['product']}/{post['release']}" for post in inbox.posts
    ]
