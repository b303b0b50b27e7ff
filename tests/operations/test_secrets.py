"""Texts that are sealed by purpose and row under the installation key."""

from __future__ import annotations

import pytest

from tidegate.control.secrets import SealBroken, Secrets

OURS, THEIRS = Secrets(b"1" * 32), Secrets(b"2" * 32)


def test_opens_what_it_sealed_and_shows_nothing_of_it() -> None:
    sealed = OURS.seal("addresses", "row-1", b"https://hooks.example/secret")

    assert OURS.unseal("addresses", "row-1", sealed) == b"https://hooks.example/secret"
    assert "hooks" not in sealed
    assert sealed != OURS.seal("addresses", "row-1", b"https://hooks.example/secret")


@pytest.mark.parametrize(("purpose", "row"), [("names", "row-1"), ("addresses", "row-2")])
def test_opens_only_for_its_purpose_and_row(purpose: str, row: str) -> None:
    sealed = OURS.seal("addresses", "row-1", b"secret")

    with pytest.raises(SealBroken, match="changed after it was sealed"):
        OURS.unseal(purpose, row, sealed)


def test_names_both_keys_if_another_installation_sealed_it() -> None:
    sealed = THEIRS.seal("addresses", "row-1", b"secret")

    with pytest.raises(SealBroken) as caught:
        OURS.unseal("addresses", "row-1", sealed)

    assert OURS.key_id in caught.value.detail
    assert THEIRS.key_id in caught.value.detail


@pytest.mark.parametrize("spoilt", ["", "x", "AAAA", "!!"])
def test_refuses_text_that_was_not_sealed(spoilt: str) -> None:
    with pytest.raises(SealBroken):
        OURS.unseal("addresses", "row-1", f"{OURS.key_id}.{spoilt}")
