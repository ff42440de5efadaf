"""Delivering an alert by webhook and by mail; a failure to do so is an outcome, not an error.

Neither addresses nor passwords appear in an outcome, a log line or the ledger.
"""

from __future__ import annotations

import logging
import os
import smtplib
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import EmailMessage

import httpx

from tasks.alerts.message import Alert
from tasks.configuration.alerts import Alerts, Email

DELIVERED = "delivered"
TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = (1.0, 4.0)
_SERVER_ERROR = 500
_TOO_MANY_REQUESTS = 429


class Undelivered(Exception):
    """An alert was not taken; carries the kind of trouble and whether it may pass."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_pass = may_pass


def deliver(alert: Alert, settings: Alerts) -> dict[str, str]:
    """Send an alert through every channel; says of each that it was delivered, or why not."""
    channels: dict[str, Callable[[], None]] = {}
    if settings.webhook is not None:
        channels["webhook"] = lambda: post(settings.address(), alert)
    email = settings.email
    if email is not None:
        channels["email"] = lambda: mail(email, alert)
    return {name: _attempt(send) for name, send in channels.items()}


def _attempt(send: Callable[[], None]) -> str:
    for pause in (*RETRY_SECONDS, None):
        try:
            send()
        except Undelivered as trouble:
            if pause is None or not trouble.may_pass:
                return trouble.reason
            time.sleep(pause)
        else:
            return DELIVERED
    raise AssertionError("the last attempt has no pause")


def post(address: str | None, alert: Alert) -> None:
    """Send an alert as JSON by POST; redirections are not followed.

    Raises:
        Undelivered: there is no address, nobody answers, or the answer is no.
    """
    if address is None:
        raise Undelivered("the variable that should hold the address does not", may_pass=False)
    try:
        with _unlogged(), httpx.Client(timeout=TIMEOUT_SECONDS) as client:
            status = client.post(address, json=alert.document()).status_code
    except httpx.TransportError as error:
        raise Undelivered(type(error).__name__, may_pass=True) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(type(error).__name__, may_pass=False) from None
    if not httpx.codes.is_success(status):
        may_pass = status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS
        raise Undelivered(f"HTTP status {status}", may_pass=may_pass)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep the address, which may hold a token, out of the library's own log."""
    loggers = [logging.getLogger(name) for name in ("httpx", "httpcore")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def mail(settings: Email, alert: Alert) -> None:
    """Send an alert by SMTP, encrypted unless the configuration says otherwise.

    Raises:
        Undelivered: there is no password, nobody answers, or the server refuses.
    """
    message = EmailMessage()
    message["Subject"] = alert.subject
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.to)
    message.set_content(alert.text + "\n")
    password = os.environ.get(settings.password_env, "") if settings.password_env else None
    if password == "":
        raise Undelivered("the variable that should hold the password does not", may_pass=False)
    try:
        with _session(settings) as session:
            if settings.user is not None and password is not None:
                session.login(settings.user, password)
            session.send_message(message)
    except (smtplib.SMTPAuthenticationError, ssl.SSLError) as error:
        raise Undelivered(type(error).__name__, may_pass=False) from None
    except (smtplib.SMTPException, OSError) as error:
        raise Undelivered(type(error).__name__, may_pass=True) from None


def _session(settings: Email) -> smtplib.SMTP:
    place = (settings.host, settings.port)
    if settings.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(*place, timeout=TIMEOUT_SECONDS, context=context)
    session = smtplib.SMTP(*place, timeout=TIMEOUT_SECONDS)
    if settings.security == "starttls":
        try:
            session.starttls(context=ssl.create_default_context())
        except BaseException:
            session.close()
            raise
    return session
