"""The site of the pages: it builds without a warning, loads nothing external, names every error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.docs.blocks import PAGES, ROOT
from tests.source_tree import own_errors

ASKED = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:[^\"> ]+)")
SHEETS = re.compile(
    r"<link[^>]+rel=\"?(?:stylesheet|preconnect|preload)\"?[^>]*href=\"?(https?:[^\"> ]+)"
)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


def test_builds_without_a_warning_and_loads_nothing_external(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    pages = list((tmp_path / "site").rglob("*.html"))
    asked = {
        address
        for page in pages
        for pattern in (ASKED, SHEETS)
        for address in pattern.findall(page.read_text())
    }

    assert built.returncode == 0, built.stderr
    assert len(pages) >= len(PAGES) - 1  # README is not part of the site
    assert asked == set()


def test_all_links_have_targets() -> None:
    lost = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in LINK.findall(re.sub(r"(?s)```.*?```|`[^`]*`", "", page.read_text()))
        if not (page.parent / link).exists()
    ]

    assert lost == []


def test_names_every_error_on_the_page_of_problems() -> None:
    page = (ROOT / "docs" / "problems" / "README.md").read_text()
    codes = {error.code for error in own_errors()}

    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_the_page_of_problems_links_to_pages_that_explain_the_code() -> None:
    page = (ROOT / "docs" / "problems" / "README.md").read_text()
    rows = re.findall(r"^\| \[[^]]+\]\(\.\./([\w/]+\.md)\) \| (.+) \|$", page, re.MULTILINE)
    lost = [
        f"{target}: {code}"
        for target, codes in rows
        for code in re.findall(r"`(\w+)`", codes)
        if f"`{code}`" not in (ROOT / "docs" / target).read_text()
    ]

    assert rows, "the page has no links"
    assert lost == []


def test_pictures_are_valid_and_load_nothing_external() -> None:
    for picture in (ROOT / "docs" / "pictures").iterdir():
        root = ElementTree.fromstring(picture.read_text())
        text = picture.read_text()

        assert root.tag.endswith("svg"), picture.name
        assert "prefers-color-scheme: dark" in text, picture.name
        assert re.findall(r"(?:href|src)=\"https?:|url\(http", text) == [], picture.name
