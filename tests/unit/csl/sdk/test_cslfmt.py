"""`cslfmt`, from the command line: what it writes, what it says, and how it ends."""

import io
import stat

import pytest

from cstool.csl.sdk import cslfmt

UGLY, NICE = "var  x:i16=1;\n", "var x: i16 = 1;\n"
WRONG = "var x = ;\n"
SAID = "wrong.csl:1:9: expected an expression, got ';'\n    var x = ;\n            ^\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ugly.csl").write_text(UGLY)
    (tmp_path / "nice.csl").write_text(NICE)
    (tmp_path / "wrong.csl").write_text(WRONG)
    return tmp_path


def test_files_are_formatted_in_place_all_but_the_wrong_one(here, capsys):
    (here / "ugly.csl").chmod(0o640)
    (here / "link.csl").symlink_to("ugly.csl")
    assert cslfmt.main(["nice.csl", "wrong.csl", "link.csl"]) == 1
    assert capsys.readouterr() == ("", SAID)
    assert [(here / f"{name}.csl").read_text() for name in ("ugly", "wrong")] == [NICE, WRONG]
    assert (here / "link.csl").is_symlink()
    assert stat.S_IMODE((here / "ugly.csl").stat().st_mode) == 0o640


def test_check_and_diff_write_nothing(here, capsys):
    assert cslfmt.main(["--check", "nice.csl", "ugly.csl"]) == 1
    assert capsys.readouterr() == ("", "ugly.csl: is not formatted\n")
    assert cslfmt.main(["--check", "nice.csl"]) == 0
    assert cslfmt.main(["--diff", "ugly.csl"]) == 0
    diff = "--- ugly.csl\n+++ ugly.csl formatted\n@@ -1 +1 @@\n-var  x:i16=1;\n+var x: i16 = 1;\n"
    assert capsys.readouterr() == (diff, "")
    assert (here / "ugly.csl").read_text() == UGLY


def test_stdin_goes_to_stdout(here, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(UGLY))
    assert cslfmt.main(["-"]) == 0
    assert capsys.readouterr() == (NICE, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.csl"], "cslfmt: error: none.csl: must be a file, is not there\n"),
        (["."], "cslfmt: error: .: must be a file, is none\n"),
        (["bytes.csl"], "cslfmt: error: bytes.csl: must be text in UTF-8\n"),
        (["--chekc", "a.csl"], "cslfmt: error: unrecognized arguments: --chekc\nhint: cslfmt --help lists the flags\n"),
    ],
)
def test_what_it_says(here, capsys, words, said):
    (here / "bytes.csl").write_bytes(b"\xff")
    assert cslfmt.main(words) == (1 if "bytes" in said else 2)
    assert capsys.readouterr() == ("", said)
