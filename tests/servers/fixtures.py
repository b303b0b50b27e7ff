"""Fixtures for every test: the engines as a parameter, and the URLs of this run's servers."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import pytest

from tests.servers import shared

ENGINES = ("memory", "sqlite", "postgres", "dynamodb")
# The client needs credentials and a region even though the server on loopback ignores them.
AWS_DEFAULTS = {
    "AWS_ACCESS_KEY_ID": "unused",
    "AWS_SECRET_ACCESS_KEY": "unused",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

_RUN = pytest.StashKey[AbstractContextManager[None]]()

# The engine that a test needs although none of its parameters names it.
SERVED = {"postgres_url": "postgres", "dynamodb_url": "dynamodb", "s3_url": "s3"}


def engines_of(item: pytest.Item) -> set[str]:
    """The engines that a test runs on, or whose server it uses."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params.values() if callspec else ()
    named = {param for param in params if isinstance(param, str)}
    fixtures: list[str] = getattr(item, "fixturenames", [])
    served = {SERVED[name] for name in fixtures if name in SERVED}
    return named & {*ENGINES, "s3"} | served


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engines",
        metavar="NAMES",
        help="leave out the tests of other engines than these, as in memory,sqlite",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: str | None = config.getoption("engines")
    if chosen is None:
        return
    names = set(chosen.split(","))
    if unknown := names - {*ENGINES, "s3"}:
        raise pytest.UsageError(f"--engines knows {', '.join(ENGINES)} and s3, not {unknown}")
    left = [item for item in items if not engines_of(item) <= names]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if engines_of(item) <= names]


def pytest_configure(config: pytest.Config) -> None:
    for name, value in AWS_DEFAULTS.items():
        os.environ.setdefault(name, value)
    config.stash[_RUN] = shared.run()
    config.stash[_RUN].__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_RUN].__exit__(None, None, None)


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine: a test with this fixture runs once on each of them."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The run's PostgreSQL as a libpq URL. It is shared: use a schema of your own."""
    return shared.url("postgres")


@pytest.fixture(scope="session")
def dynamodb_url() -> str:
    """The endpoint of the run's DynamoDB. It is shared: use a table of your own."""
    return shared.url("dynamodb")


@pytest.fixture(scope="session")
def s3_url() -> str:
    """The endpoint of the run's S3. It is shared: use a bucket of your own."""
    return shared.url("s3")
