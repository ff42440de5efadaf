"""Whom to tell when something needs a person: the alerts of a product's configuration."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tasks.configuration.section import Exact, Section

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WEB_ADDRESS = re.compile(r"https?://[^\s/@]+(/\S*)?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,253})")
# No blank, comma or bracket: one plain address, which cannot bring further headers with it.
_MAILBOX = re.compile(r"[^@\s<>,;:\"]+@[^@\s<>,;:\"]+")


class Kind(StrEnum):
    """What an alert is about."""

    FAILURE = "failure"
    GATE = "gate"
    BUDGET = "budget"
    MISSED = "missed"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Email(Section):
    """Mail by SMTP; the password is in the environment, never in the file."""

    model_config = ConfigDict(populate_by_name=True)

    to: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = Field(min_length=1)
    sender: str = Field(alias="from")
    host: str
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password_env: str | None = None

    @field_validator("to", "sender")
    @classmethod
    def _mailboxes(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not all(_MAILBOX.fullmatch(box) for box in _as_list(value)):
            raise ValueError("must be plain mail addresses, such as ops@example.org")
        return value

    @field_validator("host")
    @classmethod
    def _plain_host(cls, host: str) -> str:
        if not _HOST.fullmatch(host):
            raise ValueError("must be the name of a mail server")
        return host

    @field_validator("password_env")
    @classmethod
    def _variable(cls, name: str | None) -> str | None:
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("must name an environment variable; the password itself is not kept")
        return name

    @model_validator(mode="after")
    def _password_in_private(self) -> Email:
        if (self.user is None) != (self.password_env is None):
            raise ValueError("user and password_env belong together: give both or neither")
        if self.user is not None and self.security == "none":
            raise ValueError("a password is not sent in the clear: use starttls or tls")
        return self


class Alerts(Section):
    """What to tell, and where.

    Attributes:
        on: the occasions.
        webhook: an address that takes JSON by POST, or $NAME of a variable that holds it.
        email: a mail server and who gets mail.
        budget_below: the share of a population's budget that is left when it is time to tell.
        missed_after: minutes after which a release that came due and is not out was missed.
    """

    on: tuple[Kind, ...] = Field(default=tuple(Kind), min_length=1)
    webhook: str | None = None
    email: Email | None = None
    budget_below: Exact = Field(default=Fraction(1, 4), gt=0, lt=1)
    missed_after: int = Field(default=60, ge=0, le=7 * 24 * 60)

    @field_validator("webhook")
    @classmethod
    def _an_address(cls, webhook: str | None) -> str | None:
        if webhook is not None and not (
            _WEB_ADDRESS.fullmatch(webhook)
            or (webhook.startswith("$") and _VARIABLE.fullmatch(webhook[1:]))
        ):
            raise ValueError("must be an http(s) address, or $NAME of an environment variable")
        return webhook

    @model_validator(mode="after")
    def _somewhere(self) -> Alerts:
        if self.webhook is None and self.email is None:
            raise ValueError("name a webhook, an email, or both")
        return self

    def address(self) -> str | None:
        """The webhook's address; None if there is none, or its variable is not set."""
        if self.webhook is None or not self.webhook.startswith("$"):
            return self.webhook
        said = os.environ.get(self.webhook[1:], "")
        return said if _WEB_ADDRESS.fullmatch(said) else None
