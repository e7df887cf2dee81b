import pytest

from skb_pipeline.errors import PassingError
from skb_pipeline.graph.neo4j.connection import Neo4jAwayError, Neo4jServerError, Neo4jSettings, open_driver
from skb_pipeline_tests.bolt_server import BoltServer

SECRET = "sk-TEST-123"


def test_settings_come_from_the_environment() -> None:
    assert Neo4jSettings.from_environment({}) is None
    assert Neo4jSettings.from_environment({"NEO4J_URI": " ", "NEO4J_PASSWORD": SECRET}) is None
    full = {"NEO4J_URI": "bolt://h:7", "NEO4J_USER": "u", "NEO4J_PASSWORD": SECRET, "NEO4J_DATABASE": "d"}
    assert Neo4jSettings.from_environment(full) == Neo4jSettings("bolt://h:7", "u", SECRET, "d")
    least = Neo4jSettings.from_environment({"NEO4J_URI": "bolt://h", "NEO4J_DATABASE": ""})
    assert least == Neo4jSettings("bolt://h", "neo4j", "", None)
    aura = Neo4jSettings.from_environment({"NEO4J_URI": "bolt://h", "NEO4J_USERNAME": "someone"})
    assert aura is not None
    assert aura.user == "someone"


def test_a_missing_address_is_told_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEO4J_URI", raising=False)
    with pytest.raises(Neo4jServerError, match="NEO4J_URI is not set"):
        Neo4jSettings.require()


@pytest.mark.parametrize(
    "uri", [f"neo4j://me:{SECRET}@host:7687", f"bolt://me:{SECRET}/x@host", "localhost", "bolt://", "bolt://h:x"]
)
def test_an_address_with_a_password_or_without_a_host_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(Neo4jServerError, match="NEO4J_URI") as raised:
        Neo4jSettings.from_environment({"NEO4J_URI": uri})
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("neo4j+s://Host.example:7687?policy=eu", "neo4j+s://host.example:7687"),
        (f"bolt://host/?password={SECRET}", "bolt://host"),
    ],
)
def test_the_address_that_is_shown_has_nothing_but_the_server(uri: str, address: str) -> None:
    settings = Neo4jSettings(uri, "me", SECRET)
    assert settings.address == address
    assert SECRET not in repr(Neo4jSettings("bolt://h", "me", SECRET))
    assert settings.redact(f"a {SECRET} b {SECRET}") == "a *** b ***"
    assert Neo4jSettings("bolt://h").redact("as it is") == "as it is"


def test_a_server_that_is_away_is_named() -> None:
    settings = Neo4jSettings("bolt://127.0.0.1:1", "me", SECRET)
    told = r"Neo4j at bolt://127\.0\.0\.1:1 cannot be reached"
    with pytest.raises(Neo4jAwayError, match=told) as raised, open_driver(settings):
        pytest.fail("connected")
    assert SECRET not in str(raised.value)


def test_a_wrong_password_and_an_unknown_database_are_named(bolt_server: BoltServer) -> None:
    env = dict(bolt_server.environment)
    wrong = Neo4jSettings.from_environment({**env, "NEO4J_PASSWORD": SECRET})
    assert wrong is not None
    with pytest.raises(Neo4jServerError, match=f"refuses the user '{wrong.user}'") as raised, open_driver(wrong):
        pytest.fail("connected")
    assert not isinstance(raised.value, PassingError)  # trying again would lock the account
    assert SECRET not in str(raised.value)
    lost = Neo4jSettings.from_environment({**env, "NEO4J_DATABASE": "nowhere"})
    assert lost is not None
    with pytest.raises(Neo4jServerError, match="database 'nowhere' failed"), open_driver(lost):
        pytest.fail("connected")


def test_the_text_of_a_server_error_does_not_carry_the_password_on(bolt_server: BoltServer) -> None:
    settings = Neo4jSettings.from_environment(bolt_server.environment)
    assert settings is not None
    with pytest.raises(Neo4jServerError, match=r"failed: .*\*\*\*") as raised, open_driver(settings) as driver:
        # Servers quote a faulty statement in the error.
        driver.execute_query(f"Secret{settings.password} (n)", database_=settings.database)
    assert settings.password not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_errors_of_the_caller_stay_what_they_are(bolt_server: BoltServer) -> None:
    settings = Neo4jSettings.from_environment(bolt_server.environment)
    assert settings is not None
    with pytest.raises(ZeroDivisionError), open_driver(settings):
        1 / 0  # noqa: B018
