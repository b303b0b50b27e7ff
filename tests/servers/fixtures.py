"""The engines as a parameter, and the URLs of this run's servers, as fixtures for every test."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import pytest

from tests.servers import shared

ENGINES = ("memory", "sqlite", "postgres", "dynamodb")
# The client wants credentials and a region even where the server on loopback ignores them.
AWS_DEFAULTS = {
    "AWS_ACCESS_KEY_ID": "unused",
    "AWS_SECRET_ACCESS_KEY": "unused",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

_RUN = pytest.StashKey[AbstractContextManager[None]]()


def pytest_configure(config: pytest.Config) -> None:
    for name, value in AWS_DEFAULTS.items():
        os.environ.setdefault(name, value)
    config.stash[_RUN] = shared.run()
    config.stash[_RUN].__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_RUN].__exit__(None, None, None)


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine: a test that takes this runs once on each of them."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The run's PostgreSQL as a libpq URL. It is shared: take a schema of your own."""
    return shared.url("postgres")


@pytest.fixture(scope="session")
def dynamodb_url() -> str:
    """The endpoint of the run's DynamoDB. It is shared: take a table of your own."""
    return shared.url("dynamodb")


@pytest.fixture(scope="session")
def s3_url() -> str:
    """The endpoint of the run's S3. It is shared: take a bucket of your own."""
    return shared.url("s3")
