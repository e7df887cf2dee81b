"""Where the Neo4j server is and who we are there: settings from the environment, and a driver that keeps secrets.

Nothing here, and nothing that is given a driver from here, may log, store or print the password.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from skb_pipeline.errors import PassingError, UserError

if TYPE_CHECKING:
    from neo4j import Driver

CONNECTION_TIMEOUT_S = 10.0
RETRY_TIME_S = 60.0
"""For how long a transaction that failed for a passing reason is tried again."""


class Neo4jServerError(UserError, RuntimeError):
    """The server is not configured, cannot be reached, refuses, or failed; the message never holds the password."""


class Neo4jAwayError(Neo4jServerError, PassingError):
    """The server cannot be reached now, or asks to be tried again."""


@dataclass(frozen=True)
class Neo4jSettings:
    """How to reach the server.

    Attributes:
        uri: such as ``neo4j://host:7687`` or ``bolt+s://host:7687``, without user and password.
        user, password: empty password means no authentication.
        database: name of the database, or None for the user's home database.
    """

    uri: str
    user: str = "neo4j"
    password: str = field(default="", repr=False)
    database: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self | None:
        """Settings from ``NEO4J_URI``, ``NEO4J_USER``, ``NEO4J_PASSWORD``, ``NEO4J_DATABASE``; None without the first.

        ``NEO4J_USERNAME``, as Neo4j's own credential files have it, stands in for ``NEO4J_USER``.

        Raises:
            Neo4jServerError: the address holds a user or password, or is none.
        """
        env = os.environ if environment is None else environment
        uri = env.get("NEO4J_URI", "").strip()
        if not uri:
            return None
        if "@" in uri:
            raise Neo4jServerError(
                "NEO4J_URI must not hold a user or password (an '@' is in it); "
                "put them into NEO4J_USER and NEO4J_PASSWORD"
            )
        settings = cls(
            uri=uri,
            user=env.get("NEO4J_USER") or env.get("NEO4J_USERNAME") or "neo4j",
            password=env.get("NEO4J_PASSWORD", ""),
            database=env.get("NEO4J_DATABASE") or None,
        )
        if not settings.address:
            raise Neo4jServerError("NEO4J_URI is not an address such as neo4j://localhost:7687")
        return settings

    @classmethod
    def require(cls) -> Self:
        """Like :meth:`from_environment`, but the variables must be there.

        Raises:
            Neo4jServerError: ``NEO4J_URI`` is not set, or is no good.
        """
        settings = cls.from_environment()
        if settings is None:
            raise Neo4jServerError(
                "NEO4J_URI is not set: give the server's address in NEO4J_URI, and NEO4J_USER, NEO4J_PASSWORD and, "
                "if it is not the home database, NEO4J_DATABASE"
            )
        return settings

    @property
    def address(self) -> str:
        """Scheme, host and port for people and manifests; empty if the URI has no host."""
        try:
            parts = urlsplit(self.uri)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            return ""
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.scheme and parts.hostname else ""

    def redact(self, text: str) -> str:
        """``text`` with every occurrence of the password replaced."""
        return text.replace(self.password, "***") if self.password else text


@contextmanager
def open_driver(settings: Neo4jSettings) -> Iterator[Driver]:
    """A driver that has reached the database; it is closed with the block.

    Raises:
        Neo4jServerError: the server is away, refuses, or lacks the database, or the driver failed within the block. The
            driver's own exception is not chained, as its text may quote what it was given. A Neo4jAwayError if the
            same may succeed later.
    """
    from neo4j import GraphDatabase
    from neo4j.exceptions import AuthError, DriverError, Neo4jError, ServiceUnavailable

    auth = (settings.user, settings.password) if settings.password else None
    try:
        with GraphDatabase.driver(
            settings.uri,
            auth=auth,
            connection_timeout=CONNECTION_TIMEOUT_S,
            max_transaction_retry_time=RETRY_TIME_S,
            # Notifications are about labels that do not exist yet, which is no news while loading.
            notifications_min_severity="OFF",
        ) as driver:
            with driver.session(database=settings.database) as session:
                session.run("RETURN 1").consume()
            yield driver
    except (DriverError, Neo4jError) as error:
        what = "failed"
        if isinstance(error, ServiceUnavailable):
            what = "cannot be reached"
        elif isinstance(error, AuthError):
            what = f"refuses the user {settings.user!r}"
        database = f", database {settings.database!r}" if settings.database else ""
        message = settings.redact(f"Neo4j at {settings.address}{database} {what}: {error}")
        passing = isinstance(error, ServiceUnavailable) or error.is_retryable()
        raise (Neo4jAwayError if passing else Neo4jServerError)(message).with_traceback(error.__traceback__) from None
