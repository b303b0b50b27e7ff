"""Features of a terminal: questions, hidden input of secrets, progress bars."""

from __future__ import annotations

from pathlib import Path

from tests.api.serving import Served
from tests.cli.conftest import Seat
from tests.cli.shell import INTERRUPT, Shell
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Role

PASSWORD = "correct horse battery"


def test_prompts_for_missing_values_and_hides_the_password(tmp_path: Path, served: Served) -> None:
    served.add_person("user_grace00000", PersonNames("grace", "Grace"), PASSWORD)
    shell = Shell(tmp_path / "home", served.url)

    signed_in = shell.on_terminal(
        "login", typed=(("name: ", "grace\n"), ("Password: ", f"{PASSWORD}\n"))
    )
    piped = shell.run("login", "--login", "grace")

    assert signed_in.code == 0, signed_in.out
    assert "Sign-in name: " in signed_in.out
    assert "signed in to" in signed_in.out
    assert PASSWORD not in signed_in.out
    assert (piped.code, "--password-stdin" in piped.err) == (2, True)


def test_asks_for_confirmation_before_it_erases_a_person(tmp_path: Path, served: Served) -> None:
    admin = Shell(tmp_path / "home", served.url, served.token("user_admin0000"))
    user = served.user()

    kept = admin.on_terminal("user", "erase", user, typed=[("[y/N]: ", "n\n")])
    erased = admin.on_terminal("user", "erase", user, typed=[("[y/N]: ", "y\n")])

    assert kept.code == 130
    assert erased.code == 0
    assert f"{user} is erased" in erased.out


def test_shows_a_progress_bar_during_a_large_push(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    author.run("rev", "create", "heavy", "--workspace", "v1")
    place = tmp_path / "heavy"
    place.mkdir()
    (place / "blob").write_bytes(bytes(range(256)) * 16_384)

    pushed = author.on_terminal("rev", "push", "heavy.v1", str(place))
    piped = author.run("rev", "push", "heavy.v1", str(place))

    assert pushed.code == 0, pushed.out
    assert "pushing" in pushed.out
    assert "has 1 file;" in pushed.out
    assert (piped.code, piped.err) == (0, "")


def test_ends_with_its_own_code_when_it_is_interrupted(tmp_path: Path, served: Served) -> None:
    shell = Shell(tmp_path / "home", served.url)

    interrupted = shell.on_terminal("login", typed=[("name: ", INTERRUPT)])

    assert interrupted.code == 130
