"""Open a fresh log per test on each engine, with as many handles as the test asks for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import copyfile

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address, Connect, address_of, opener
from tests.contract.in_process_fleet import FleetStores, InProcessFleet
from tests.contract.postgres_templates import Template
from tests.contract.racing import Crowd
from tests.domain.package_log import FOLDS as PACKAGE_FOLDS, PackageLog
from tests.quick import fewer
from tidegate.domain.composition import FOLDS, SCHEMA as FLEET_SCHEMA
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

PROCESSES = 3
# How often a race is repeated, by engine: the cost of a round differs far more than its value.
ROUNDS = {"memory": 12, "sqlite": 6, "postgres": 6, "dynamodb": 4}


@pytest.fixture
def address(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Address | None:
    """Where this test's log lives, to pass to other processes. None for memory."""
    return address_of(request, engine, tmp_path)


@pytest.fixture
def connect(address: Address | None) -> Iterator[Connect]:
    """Open handles on this test's log. Two handles stand for two processes."""
    open_handle = opener(address)
    with ExitStack() as handles:
        yield lambda: handles.enter_context(closing(open_handle()))


@pytest.fixture
def store(connect: Connect) -> Store:
    return connect()


@pytest.fixture
def package_log(address: Address | None) -> Iterator[PackageLog]:
    """Packages on this engine, with one repository. At the end a replay yields the same rows."""
    schema = PACKAGE_FOLDS.schema
    store: Store = MemoryStore(schema) if address is None else address.open(schema)
    with closing(store):
        package_log = PackageLog(store)
        package_log.repository()
        yield package_log
        assert differences(store, PACKAGE_FOLDS) == []


@pytest.fixture(scope="session")
def fleet_template(postgres_url: str) -> Iterator[Template]:
    """The domain's tables on PostgreSQL, created once for all fleets of this process."""
    with closing(Template(postgres_url, FLEET_SCHEMA)) as template:
        yield template


@pytest.fixture(scope="session")
def fleet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The domain's tables in an SQLite file. Copying it takes an eighth of the time of creating
    them.
    """
    place = tmp_path_factory.mktemp("fleet") / "template.db"
    Address("sqlite", str(place)).open(FLEET_SCHEMA).close()
    return place


@pytest.fixture
def fleet_address(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path
) -> Iterator[Address | None]:
    """Where this test's fleet keeps its log; None for memory."""
    if engine == "postgres":
        template: Template = request.getfixturevalue("fleet_template")
        with template.clone() as address:
            yield address
        return
    address_or_none = address_of(request, engine, tmp_path)
    if engine == "sqlite" and address_or_none is not None:
        copyfile(request.getfixturevalue("fleet_file"), address_or_none.where)
    yield address_or_none


@pytest.fixture
def fleet_stores(fleet_address: Address | None) -> Iterator[FleetStores]:
    with closing(FleetStores(fleet_address)) as fleet_stores:
        yield fleet_stores


@pytest.fixture
def fleet(fleet_stores: FleetStores) -> Iterator[InProcessFleet]:
    """The fleet of this test. At the end of the test the log must give exactly the stored rows."""
    journey = InProcessFleet(fleet_stores.open())
    yield journey
    journey.check_invariants()
    assert differences(journey.store, FOLDS) == []


@pytest.fixture(scope="module")
def steady(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """One log for all tests of a module that only read or are refused, and so change nothing."""
    address = address_of(request, engine, tmp_path_factory.mktemp("steady"))
    with closing(opener(address)()) as store:
        yield store


@pytest.fixture
def rounds(engine: str) -> int:
    return fewer(ROUNDS[engine])


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """A process pool for the whole run: starting a process costs more than most of its work."""
    with ProcessPoolExecutor(PROCESSES, mp_context=CHILDREN) as pool:
        yield pool


@pytest.fixture
def crowd(request: pytest.FixtureRequest, connect: Connect, address: Address | None) -> Crowd:
    """Run work on this test's log at once, in threads and in processes."""
    return Crowd(connect, address, lambda: request.getfixturevalue("processes"))
