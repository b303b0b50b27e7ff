"""The requirement report counts a point only where it was proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reqs import ROW

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[1]
POINTS = "| id | point |\n|---|---|\n| AA-1 | the first |\n| AA-2 | the second |\n"
PROVES_BOTH_WAYS = """
    import pytest

    engines = pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres", "dynamodb"])

    @engines
    @pytest.mark.req("AA-1")
    def test_engine(engine):
        pass

    @pytest.mark.req("AA-2", engines=None, reason="pure")
    def test_pure():
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of two points that uses the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each run would import them again
    pytester.makeconftest('pytest_plugins = ("tests.reqs",)')
    pytester.mkdir("docs").joinpath("requirements.md").write_text(POINTS)
    return pytester


def lines(project: pytest.Pytester, *args: str) -> list[str]:
    result = project.runpytest_inprocess("--req-report", "-q", *args)
    return [" ".join(line.split()) for line in result.outlines if line]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "two workers"])
def test_counts_a_point_proved_on_each_engine_or_without_one(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    project.makepyfile(PROVES_BOTH_WAYS)

    report = lines(project, *workers)

    assert "AA-1 passed passed passed - the first" in report
    assert "AA-2 - - - passed the second" in report
    assert "without proof: none" in report
    assert report[-2].startswith("5 passed")
    assert report[-1] == "proved 2 of 2"


def test_does_not_count_a_point_that_an_engine_misses(project: pytest.Pytester) -> None:
    project.makepyfile(PROVES_BOTH_WAYS)

    report = lines(project, "-k", "not postgres and not pure")

    assert "AA-1 passed missing passed - the first" in report
    assert "AA-2 missing missing missing - the second" in report
    assert "without proof: AA-1, AA-2" in report
    assert report[-1] == "proved 0 of 2"


def test_does_not_count_a_point_with_a_failed_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        PROVES_BOTH_WAYS
        + """
    @engines
    @pytest.mark.req("AA-1", "AA-2")
    def test_more(engine):
        assert engine != "memory"

    @engines
    @pytest.mark.req("AA-2")
    def test_most(engine):
        assert engine != "dynamodb"
"""
    )

    report = lines(project)

    assert "AA-1 passed passed passed - the first" in report
    assert "AA-2 passed passed FAILED passed the second" in report
    assert report[-1] == "proved 0 of 2"


def test_does_not_count_a_skipped_test_or_a_failed_set_up(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken():
            raise RuntimeError

        @pytest.mark.req("AA-1", engines=None, reason="pure")
        def test_skipped():
            pytest.skip("not today")

        @pytest.mark.req("AA-2", engines=None, reason="pure")
        def test_broken(broken):
            pass
        """
    )

    report = lines(project)

    assert "AA-1 - - - missing the first" in report
    assert "AA-2 - - - FAILED the second" in report
    assert report[-1] == "proved 0 of 2"


def test_counts_a_point_of_one_engine_where_that_engine_passed(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("engine", ["dynamodb"])
        @pytest.mark.req("AA-1", only="dynamodb", reason="its items")
        def test_its_own(engine):
            pass

        @pytest.mark.parametrize("engine", ["sqlite"])
        @pytest.mark.req("AA-2", only="dynamodb", reason="its items")
        def test_another(engine):
            pass
        """
    )

    report = lines(project)

    assert "AA-1 - - passed - the first" in report
    assert "AA-2 passed - missing - the second" in report
    assert report[-1] == "proved 1 of 2"


@pytest.mark.parametrize(
    "beside", ['engines=None, reason="pure"', 'only="dynamodb", reason="its items"']
)
def test_requires_every_engine_if_one_test_does(project: pytest.Pytester, beside: str) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.parametrize("engine", ["dynamodb"])
        @pytest.mark.req("AA-1", {beside})
        def test_less(engine):
            pass

        @pytest.mark.parametrize("engine", ["sqlite", "postgres", "dynamodb"])
        @pytest.mark.req("AA-1")
        def test_engine(engine):
            if engine == "postgres":
                pytest.skip("not today")
        """
    )

    report = lines(project)
    complete = lines(project, "-k", "less")

    assert any(line.startswith("AA-1 passed missing passed") for line in report)
    assert report[-1] == "proved 0 of 2"
    assert complete[-1] == "proved 1 of 2"


@pytest.mark.parametrize(
    ("mark", "engine", "complaint"),
    [
        ('"AA-9"', "engine", "req names unknown points: AA-9"),
        ("", "engine", "req takes ids of points"),
        ('"AA-1", engine="sqlite"', "engine", "req takes ids of points"),
        ('"AA-1"', "", "must say engines=None"),
        ('"AA-1", engines=None', "", "must give the reason"),
        ('"AA-1", engines=None, reason=""', "", "must give the reason"),
        ('"AA-1", engines=["sqlite"], reason="other"', "", "takes engines=None only"),
        ('"AA-1", only="sqlite"', "engine", "must give the reason"),
        ('"AA-1", only="memory", reason="other"', "engine", "takes one of sqlite, postgres"),
        ('"AA-1", only="sqlite", reason="other"', "", "must say engines=None"),
        ('"AA-1", only="sqlite", engines=None, reason="x"', "engine", "req takes ids of points"),
    ],
)
def test_refuses_a_mark_that_could_never_count(
    project: pytest.Pytester, mark: str, engine: str, complaint: str
) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.fixture(params=["sqlite"])
        def engine(request):
            return request.param

        @pytest.mark.req({mark})
        def test_something({engine}):
            pass
        """
    )

    result = project.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*{complaint}*"])
    result.assert_outcomes(errors=1)


def test_names_every_point_once_and_in_order() -> None:
    numbers: dict[str, list[int]] = {}

    for point, _ in ROW.findall((ROOT / "docs" / "requirements.md").read_text()):
        series, _, number = point.partition("-")
        numbers.setdefault(series, []).append(int(number))

    assert list(numbers) == ["CB", "RS", "LC", "PB", "RO", "OP", "NT"]
    assert all(seen == sorted(set(seen)) for seen in numbers.values())
    open_ended = ("OP", "NT")  # a point is named once something proves it
    assert all(
        seen == list(range(1, len(seen) + 1))
        for series, seen in numbers.items()
        if series not in open_ended
    )
