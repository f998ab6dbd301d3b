"""The page to talk to: its files, asked without a key, under names of this host alone."""

import asyncio
import re
from pathlib import Path

import pytest

from cstool.serving import page
from cstool.serving.guards import Guards
from cstool.serving.page import PAGE_PATHS
from tests.served_model import asked

FOLDER = Path(page.__file__).parent / "static"


def answer(app, path: str, **headers: str):
    guards = Guards(app, {"localhost"}, b"0123456789abcdef" if headers.pop("key", None) else None)
    return asyncio.run(asked(guards, path, headers=headers))


@pytest.mark.parametrize(("path", "name"), PAGE_PATHS.items())
def test_a_file_of_the_page(app, path, name):
    found = answer(app, path, key="there is one")
    assert (found.status, found.body) == (200, (FOLDER / name).read_bytes())
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert found.headers["content-type"].endswith("; charset=utf-8")
    assert found.headers["x-content-type-options"] == "nosniff"


def test_the_page_has_all_of_its_files_and_no_html_of_others():
    assert sorted(PAGE_PATHS.values()) == sorted(file.name for file in FOLDER.iterdir())
    text = "".join(file.read_text() for file in FOLDER.iterdir())
    named = re.findall(r'(?:src|href)="([^"#]+)"|from "\./([^"]+)"', text)
    assert {one or other for one, other in named} == set(PAGE_PATHS.values()) - {"index.html"}
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org)", text) == []


def test_guards_stay(app):
    assert answer(app, "/", host="evil.example").status == 421
    assert answer(app, "/", origin="https://evil.example").status == 403
    assert asyncio.run(asked(app, "/", method="POST")).json["error"]["message"] == "/ must be asked by GET, got POST"
