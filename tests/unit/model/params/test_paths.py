"""Paths resolve against the folder of the params file, then against the working directory."""

from pathlib import Path

import pytest

from cstool.foundation.yaml_lines.section import Section
from cstool.model.params.paths import ResolvedPath, resolve_path


@pytest.fixture
def two(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The folder of a params file, and another one as working directory."""
    folder, cwd = tmp_path / "params", tmp_path / "work"
    folder.mkdir()
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return folder, cwd


@pytest.mark.parametrize(
    ("made", "written", "found"),
    [
        ("params/data work/data", "data", "params/data"),
        ("work/data", "./data/", "work/data"),
        ("", "../data", "data"),
        ("work/runs", "runs:latest", "work/runs:latest"),
        ("work/runs params/runs", "runs:latest", "params/runs:latest"),
        ("work/runs", "gone:latest", "params/gone:latest"),
    ],
)
def test_a_path_is_that_of_the_folder_of_the_file_unless_it_is_only_in_the_working_directory(two, made, written, found):
    """Of a checkpoint named by its step the folder must be there."""
    folder, _ = two
    for name in made.split():
        (folder.parent / name).mkdir()
    assert resolve_path(written, folder).path == folder.parent / found


def test_all_places_that_were_tried_are_known_and_those_written_later_count(two, tmp_path, monkeypatch):
    folder, cwd = two
    assert resolve_path("data", folder).tried == (folder / "data", cwd / "data")
    assert resolve_path("data", Path("../params")).path == folder / "data"
    assert resolve_path(str(tmp_path / "elsewhere"), folder).tried == (tmp_path / "elsewhere",)
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_path("~/data", folder).path == Path("/home/someone/data")
    assert ResolvedPath(Path("/a"), (Path("/a"),)) == ResolvedPath(Path("/a"), (Path("/a"), Path("/b")))
    folder, cwd = two
    found = resolve_path("runs:5", folder)
    (cwd / "runs").mkdir()
    assert (found.path, found.now) == (folder / "runs:5", cwd / "runs:5")


PLAIN = "must be a path without control characters"
NO_PATHS = {
    "init.model_dir": "x.yaml:12: trainer.init.model_dir",
    "init.backend.compile_dir": "x.yaml:13: trainer.init.backend.compile_dir",
    "init.loggers.TensorBoardLogger.summary_dir": "x.yaml:14: trainer.init.loggers.0.TensorBoardLogger.summary_dir",
    "fit.ckpt_path": "x.yaml:17: trainer.fit.ckpt_path",
    "validate.ckpt_path": "x.yaml:18: trainer.validate.ckpt_path",
    "validate_all.ckpt_paths": "x.yaml:19: trainer.validate_all.ckpt_paths.0",
    "fit.train_dataloader.data_dir": "x.yaml:15: trainer.fit.train_dataloader.data_dir.0",
}


@pytest.mark.parametrize(("key", "place"), NO_PATHS.items())
def test_no_path_has_a_line_end(failure, key, place):
    written = "/a\ntouch PWN\n#"
    changes = {key: [written] if key.endswith("s") else written}
    if "loggers" in key:
        changes = {"init.loggers": [{"TensorBoardLogger": {"summary_dir": written}}]}
    assert failure(changes) == f"{place} {PLAIN}, got {written!r}"


def test_every_key_that_is_called_like_a_path_is_one():
    """Of each section: what may be written there has the rule above."""
    seen = set()

    def look(section: type[Section]) -> None:
        for name, field in section.model_fields.items():
            if name.endswith(("_dir", "_path", "_file", "_checkpoint", "folders")) and field.annotation is not bool:
                seen.add(name)
                assert "ResolvedPath" in repr(field) or "AfterValidator" in repr(field), (section, name)
        for below in section.__subclasses__():
            look(below)

    look(Section)
    assert {"model_dir", "compile_dir", "ckpt_path", "vocab_file", "folders", "mask_checkpoint"} <= seen
