"""`cstool checkpoint`."""

import json
import re
import shlex
import shutil
import zlib

import h5py
import numpy as np
import pytest

from cstool import __version__
from cstool.training.store import CheckpointWriter
from tests.end_to_end.refusals import error, rows
from tests.unit.training.store.stored import without_digest


@pytest.fixture
def model_dir(tmp_path):
    """A folder with the checkpoints of steps 5 and 10, that of step 10 with a tied weight."""
    embedding = np.arange(6, dtype=np.float32).reshape(3, 2)
    for step in (5, 10):
        with CheckpointWriter(tmp_path / f"checkpoint_{step}.mdl") as writer:
            writer.add_tensor("model.embedding_layer.word_embeddings.weight", (3, 2), "float32", [embedding])
            writer.link("model.lm_head.weight", "model.embedding_layer.word_embeddings.weight")
            writer.add_tensor("optimizer.exp_avg", (3, 2), "float32", [embedding])
            writer.add_value("global_step", step)
            writer.add_value("random", {"seed": 7})
            writer.add_value("dataloader", {"batches_streamed": 1200 + step, "batch_size": 4})
            writer.add_value("__metadata__", [{"version": __version__, "model_name": "gpt2", "params": {}}])
    return tmp_path


def without_sizes(text: str) -> str:
    """Return the text without what depends on the HDF5 library and on the time."""
    return re.sub(r"\d+-\d+-\d+ \d+:\d+:\d+ UTC", "TIME", re.sub(r" +[\d.]+ kB", "  SIZE", text))


def test_a_list_names_step_size_and_file_the_latest_last(cstool, model_dir):
    lines = [line.split() for line in cstool("checkpoint", "list", model_dir).said.splitlines()]
    shown = [("step", "file"), ("5", "checkpoint_5.mdl"), ("10", "checkpoint_10.mdl")]
    assert [(line[0], line[-1]) for line in lines] == shown
    paths = {step: model_dir / f"checkpoint_{step}.mdl" for step in (5, 10)}
    listed = [{"step": step, "path": str(path), "bytes": path.stat().st_size} for step, path in paths.items()]
    document = cstool("checkpoint", "list", model_dir, "--json").document
    assert document == {"checkpoints": listed, "memoryx": None, "shards": []}


def test_an_empty_folder_has_no_checkpoints(cstool, tmp_path):
    assert cstool("checkpoint", "list", tmp_path).said == f"{tmp_path}: no checkpoints\n"
    document = cstool("checkpoint", "list", tmp_path, "--json").document
    assert document == {"checkpoints": [], "memoryx": None, "shards": []}
    assert cstool("checkpoint", "prune", tmp_path, "--keep", "1").said == "nothing to delete\n"


WEIGHT = "model.embedding_layer.word_embeddings.weight"


def test_info_is_there_as_json(cstool, model_dir):
    path = model_dir / "checkpoint_10.mdl"
    document = cstool("checkpoint", "info", path, "--json").document
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*\+00:00", document.pop("created"))
    form = {"shape": [3, 2], "dtype": "float32", "bytes": 24, "sparse_shape": None}
    counts = {"step": 10, "seed": 7, "batches_streamed": 1210, "parameter_count": 6, "bytes": path.stat().st_size}
    assert document == {
        "path": str(path),
        "version": "1.1",
        "cstool_version": __version__,
        "model_name": "gpt2",
        **counts,
        "tensors": [{"key": key, **form} for key in (WEIGHT, "optimizer.exp_avg")],
        "links": {"model.lm_head.weight": WEIGHT},
        "values": ["global_step", "random", "dataloader", "__metadata__"],
    }


@pytest.fixture
def sparse(tmp_path):
    """A checkpoint with a sparse weight of 4 x 5, 3 of which are not zero."""
    numbers, positions = np.ones(3, np.float32), np.array([2, 7, 19], np.uint32)
    with CheckpointWriter(tmp_path / "sparse.mdl") as writer:
        writer.add_tensor("model.fc.weight.indices", (3,), "uint32", [positions])
        writer.add_tensor("model.fc.weight", (3,), "float32", [numbers])
        writer.add_tensor("optimizer.fc.weight.exp_avg", (3,), "float32", [numbers])
        writer.add_tensor("model.fc.bias", (4,), "float32", [np.zeros(4, np.float32)])
        writer.add_value("global_step", 3)
        writer.add_value("sparsity", {"fc.weight": {"shape": [4, 5], "algorithm": "set", "density": 0.15}})
    return tmp_path / "sparse.mdl"


INFO = ["10 info", "10 info_all --all", "10 info_norms --tensors *e* --norms"]
INFO += ["sparse info_sparse", "sparse info_sparse_all --all"]


@pytest.mark.parametrize("asked", INFO)
def test_info_shows_what_a_checkpoint_holds_and_how_sparse_a_weight_is(cstool, model_dir, sparse, golden, asked):
    of, name, *flags = asked.split()
    path = sparse if of == "sparse" else model_dir / "checkpoint_10.mdl"
    stdout = cstool("checkpoint", "info", path, *flags).said
    golden(f"cli/checkpoint_{name}.txt", without_sizes(stdout.replace(str(model_dir), "DIR")))


def test_zeros_count_as_parameters_in_json_and_positions_do_not(cstool, sparse):
    document = cstool("checkpoint", "info", sparse, "--norms", "--json").document
    assert document["parameter_count"] == 4 * 5 + 4
    assert [tensor["sparse_shape"] for tensor in document["tensors"]] == [None, [4, 5], None, None]
    norms = [tensor["norm"] for tensor in document["tensors"]]
    assert norms == [None, pytest.approx(3**0.5), pytest.approx(3**0.5), 0]


def damage(path):
    """Change the embedding behind the back of its checksum, and return what is said of it."""
    whole, embedding = path.read_bytes(), np.arange(6, dtype=np.float32)
    at = whole.index(embedding.tobytes())
    path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    must, got = zlib.crc32(embedding.tobytes()), zlib.crc32(b"\xff" + embedding.tobytes()[1:])
    rule = f"its checksum must be {must:08x}, got {got:08x}"
    return f"{path}: model.embedding_layer.word_embeddings.weight is damaged: {rule}"


EARLIER = "hint: take an earlier checkpoint\n"


def test_verify_says_that_all_checksums_are_right_or_which_tensor_is_damaged(cstool, model_dir):
    asked = ("checkpoint", "info", model_dir / "checkpoint_10.mdl", "--verify")
    assert "checksums   all right" in cstool(*asked).stdout.splitlines()
    message = damage(model_dir / "checkpoint_10.mdl")
    assert cstool(*asked).refusal == f"error: {message}\n{EARLIER}"


# verify


def test_whole_checkpoints_are_ok(cstool, model_dir):
    lines = "".join(f"{model_dir}/checkpoint_{step}.mdl: ok\n" for step in (5, 10))
    assert cstool("checkpoint", "verify", f"{model_dir}/*.mdl") == (0, lines, "")


def test_damaged_checkpoints_are_told_line_by_line(cstool, model_dir):
    damaged = damage(model_dir / "checkpoint_5.mdl")
    partial = model_dir / "checkpoint_7.mdl"
    with h5py.File(partial, "w") as file:
        file.attrs["__version__"] = "1.1"
    lines = f"{damaged}\n{partial}: Cannot load partially written checkpoint at {partial}\n"
    whole = f"{model_dir}/checkpoint_10.mdl: ok\n"
    assert cstool("checkpoint", "verify", f"{model_dir}/*.mdl") == (1, lines + whole, "")


NO_CHECKPOINTS = rows("""\
no.mdl => a checkpoint must be a file that can be read, got: No such file or directory
loop.mdl => a checkpoint must be a file that can be read, got: Too many levels of symbolic links
.. => a checkpoint must be a file, this is a folder
text.mdl => a checkpoint must be an HDF5 file, this one is not
""")


@pytest.mark.parametrize(("name", "rule"), NO_CHECKPOINTS)
def test_what_is_no_checkpoint_is_told_among_the_others(cstool, model_dir, name, rule):
    damaged = damage(model_dir / "checkpoint_5.mdl")
    (model_dir / "loop.mdl").symlink_to("loop.mdl")
    (model_dir / "text.mdl").write_text("text")
    outcome = cstool("checkpoint", "verify", f"{model_dir}:5", f"{model_dir}/{name}", f"{model_dir}:10")
    lines = f"{damaged}\n{model_dir}/{name}: {rule}\n{model_dir}/checkpoint_10.mdl: ok\n"
    assert outcome == (2, lines, "")


def test_verify_answers_in_json(cstool, model_dir):
    damaged = damage(model_dir / "checkpoint_5.mdl")
    outcome = cstool("checkpoint", "verify", f"{model_dir}:5", f"{model_dir}:10", "--json")
    assert (outcome.code, outcome.stderr) == (1, "")
    found = [
        {"path": f"{model_dir}/checkpoint_{step}.mdl", "ok": error is None, "error": error, "note": None}
        for step, error in ((5, damaged), (10, None))
    ]
    assert json.loads(outcome.stdout) == {"ok": False, "checkpoints": found}


# diff


@pytest.fixture
def two(tmp_path):
    """Two checkpoints that differ in every way that there is."""
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    positions, narrow, step = np.array([4, 5], np.uint32), whole[0].astype(np.float16), np.array(3)
    left = {"same.weight": whole, "near.weight": whole, "far.weight": whole, "sparse.weight": whole * (whole > 3)}
    left |= {f"{name}.bias": whole[0] for name in ("type", "shape", "left")}
    right = {"same.weight": whole, "near.weight": whole * np.float32(1.000005)}
    right |= {"far.weight": whole + np.float32([0, 0.5]), "sparse.weight.indices": positions}
    right |= {"sparse.weight": whole[2], "type.bias": narrow, "shape.bias": np.zeros(3, np.float32)}
    for side, weights, count in (("left", left, step), ("right", right, step + 1)):
        with CheckpointWriter(tmp_path / f"{side}.mdl") as writer:
            for name, array in weights.items():
                writer.add_tensor(f"model.{name}", array.shape, str(array.dtype), [array])
            writer.add_tensor("optimizer.step", (), "int64", [count])
            writer.add_value("global_step", int(count))
            if side == "left":
                writer.add_value("long", "x" * 160)
            writer.add_value("same", [1, 2])
            if side == "right":
                writer.link("model.right.weight", "model.same.weight")
                writer.add_value("sparsity", {"sparse.weight": {"shape": [3, 2]}})
    return tmp_path


@pytest.mark.parametrize("op", ["equal", "allclose"])
def test_diff_tells_all_differences(cstool, two, golden, op):
    outcome = cstool("checkpoint", "diff", f"{two}/left.mdl", f"{two}/right.mdl", "--tensor_comparison_op", op)
    assert (outcome.code, outcome.stderr) == (1, "")
    golden(f"cli/checkpoint_diff_{op}.txt", outcome.stdout.replace(str(two), "DIR"))


def test_diff_of_equal_checkpoints_ends_with_a_match(cstool, model_dir):
    path = f"{model_dir}/checkpoint_5.mdl"
    said = f"left   {path}\nright  {path}\n\n2 tensors compared, 0 differ; 4 values compared, 0 differences.\n"
    assert cstool("checkpoint", "diff", path, f"{model_dir}:5") == (0, f"{said}Checkpoints match.\n", "")
    close = cstool("checkpoint", "diff", path, path, "--tensor_comparison_op=allclose", "--json").document
    assert (close["left"], close["right"], close["rtol"], close["atol"]) == (path, path, 1e-5, 1e-8)
    equal = cstool("checkpoint", "diff", path, path, "--json").document
    assert (equal["match"], equal["tensor_comparison_op"], "rtol" in equal) == (True, "equal", False)


def test_diff_of_values_alone_is_a_difference_unless_tensors_alone_are_asked_for(cstool, model_dir):
    asked = ("checkpoint", "diff", f"{model_dir}:5", f"{model_dir}:latest")
    outcome = cstool(*asked)
    assert outcome.code == 1
    assert outcome.stdout.splitlines()[3:] == [
        "value                        left  right",
        "global_step                  5     10",
        "dataloader.batches_streamed  1205  1210",
        "",
        "2 tensors compared, 0 differ; 4 values compared, 2 differences.",
        "Checkpoints differ.",
    ]
    said = "2 tensors compared, 0 differ; values are left out.\nCheckpoints match.\n"
    assert cstool(*asked, "--tensors_only").said.partition("\n\n")[2] == said


@pytest.mark.parametrize(
    ("flags", "far"), [("", "numbers"), ("--atol 0.5", None), ("--rtol=0.5", None), ("--rtol 0 --atol 0.49", "numbers")]
)
def test_tolerances_may_be_typed_and_hyphens_too(cstool, two, flags, far):
    paths = (f"{two}/left.mdl", f"{two}/right.mdl")
    outcome = cstool("checkpoint", "diff", *paths, "--tensor-comparison-op", "allclose", *flags.split(), "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.code, document["match"], document["tensor_comparison_op"]) == (1, False, "allclose")
    tensors = {tensor["key"]: tensor for tensor in document["tensors"]}
    form = {"shape": [3, 2], "dtype": "float32", "stored": None, "link": None}
    numbers = {"differing": 3, "mean_square": 0.125, "greatest": 0.5}
    assert tensors["model.far.weight"] == {
        "key": "model.far.weight",
        "left": form,
        "right": form,
        "difference": far,
        "note": None,
        **numbers,
    }
    assert document["values"][0] == {"key": "global_step", "left": "3", "right": "4"}


def test_diff_with_a_damaged_checkpoint_says_which(cstool, model_dir):
    message = damage(model_dir / "checkpoint_10.mdl")
    outcome = cstool("checkpoint", "diff", f"{model_dir}:5", f"{model_dir}:10")
    assert outcome == (2, "", f"error: {message}\n{EARLIER}")


# copy


def test_copy_says_where_the_copy_is(cstool, model_dir):
    (model_dir / "kept").mkdir()
    said = cstool("checkpoint", "copy", f"{model_dir}:latest", f"{model_dir}/kept/").said
    source, copy = model_dir / "checkpoint_10.mdl", model_dir / "kept" / "checkpoint_10.mdl"
    assert re.fullmatch(rf"{re.escape(str(source))}: copied to {re.escape(str(copy))}, [\d.]+ kB\n", said)
    assert copy.read_bytes() == source.read_bytes()
    again = f"{model_dir}/copy.mdl"
    document = cstool("checkpoint", "copy", source, again, "--json").document
    assert document == {"source": str(source), "path": again, "bytes": copy.stat().st_size, "note": None}


def test_of_a_checkpoint_without_a_digest_it_is_said_once(cstool, model_dir):
    path = without_digest(model_dir / "checkpoint_5.mdl")
    note = (
        f"note: {path} is of format 1.0, without a digest: its parts are whole, but nothing says that they belong "
        "together.\n"
    )
    assert cstool("checkpoint", "verify", path) == (0, f"{path}: ok\n{note}", "")
    code, stdout, stderr = cstool("checkpoint", "copy", path, f"{model_dir}/copy.mdl")
    assert (code, stdout.splitlines(keepends=True)[0], stderr) == (0, note, "")
    assert cstool("checkpoint", "verify", f"{model_dir}/copy.mdl") == (0, f"{model_dir}/copy.mdl: ok\n", "")


# delete and prune


def of_sizes(text, model_dir):
    return re.sub(r"[\d.]+ kB", "SIZE", text.replace(str(model_dir), "DIR"))


def test_delete_says_what_it_deletes(cstool, model_dir):
    stdout = cstool("checkpoint", "delete", f"{model_dir}:5").said
    assert of_sizes(stdout, model_dir) == "DIR/checkpoint_5.mdl: deleted, SIZE\n"
    assert [path.name for path in model_dir.iterdir()] == ["checkpoint_10.mdl"]
    path = model_dir / "checkpoint_10.mdl"
    size = path.stat().st_size
    document = cstool("checkpoint", "delete", path, "--json").document
    assert document == {"dry_run": False, "deleted": [{"path": str(path), "bytes": size}]}
    assert not path.exists()


def test_a_dry_run_deletes_nothing(cstool, model_dir):
    lines = "".join(f"DIR/checkpoint_{step}.mdl: would be deleted, SIZE\n" for step in (5, 10))
    assert of_sizes(cstool("checkpoint", "delete", f"{model_dir}/*.mdl", "--dry-run").said, model_dir) == lines
    assert len(list(model_dir.iterdir())) == 2


def test_prune_keeps_the_latest_that_are_whole(cstool, model_dir):
    shutil.copy(model_dir / "checkpoint_5.mdl", model_dir / "checkpoint_7.mdl")
    shutil.copy(model_dir / "checkpoint_5.mdl", model_dir / "checkpoint_12.mdl")
    damaged = damage(model_dir / "checkpoint_12.mdl").replace(str(model_dir), "DIR")
    (model_dir / "checkpoint_11.mdl").write_text("mine")
    for flags, word in ((("--dry_run",), "would be deleted"), ((), "deleted")):
        stdout = cstool("checkpoint", "prune", model_dir, "--keep", "2", *flags).said
        assert of_sizes(stdout, model_dir).splitlines() == [
            f"DIR/checkpoint_5.mdl: {word}, SIZE",
            f"left as it is: {damaged}",
            "left as it is: DIR/checkpoint_11.mdl: a checkpoint must be an HDF5 file, this one is not",
            "DIR/checkpoint_7.mdl: whole, kept",
            "DIR/checkpoint_10.mdl: whole, kept",
        ]
    assert sorted(path.name for path in model_dir.iterdir()) == [f"checkpoint_{n}.mdl" for n in (10, 11, 12, 7)]


def test_prune_answers_in_json(cstool, model_dir):
    size = (model_dir / "checkpoint_5.mdl").stat().st_size
    document = cstool("checkpoint", "prune", model_dir, "--keep", "1", "--json").document
    deleted = [{"path": f"{model_dir}/checkpoint_5.mdl", "bytes": size}]
    kept = [f"{model_dir}/checkpoint_10.mdl"]
    assert document == {"dry_run": False, "kept": kept, "deleted": deleted, "damaged": [], "left": []}


REFUSED = rows("""\
list DIR/no => DIR/no: must be a folder, found nothing there\nhint: FOLDER
list LONG => LONG: must be a folder, found nothing there\nhint: FOLDER
list DIR/checkpoint_5.mdl => DIR/checkpoint_5.mdl: must be a folder, got a file\nhint: FOLDER
prune DIR/no --keep 1 => DIR/no: must be a folder, found nothing there\nhint: FOLDER
prune DIR --keep 0 => --keep: must be at least 1, got 0\nhint: delete removes checkpoints one by one
info / => /: a checkpoint must be a file, this is a folder\nhint: FILE
info DIR:5 --tensors lm_head* => --tensors: must match the key of a tensor in DIR/checkpoint_5.mdl, got 'lm_head*'
    hint: a key begins with its part: 'model.*' are the weights; --all lists all
info DIR/*.mdl => DIR/*.mdl: must be one checkpoint, got 2: DIR/checkpoint_5.mdl, DIR/checkpoint_10.mdl
verify DIR:5 DIR/*.h5 => DIR/*.h5: no file has such a name\nhint: cstool checkpoint list shows those of a folder
diff DIR:5 DIR:10 --rtol 1 => --rtol: must go with --tensor_comparison_op allclose, got equal
diff DIR:5 DIR:10 --tensor_comparison_op allclose --atol -1 => --atol: must be at least 0, got -1
diff DIR:5 DIR:10 --tensor_comparison_op allclose --rtol nan => --rtol: must be at least 0, got nan
diff DIR:5 DIR:10 --tensor_comparison_op equals => --tensor_comparison_op: must be one of equal, allclose, got 'equals'
    hint: did you mean equal?
diff DIR:5 DIR:5 --tensors_only --with_paths =>
    --with_paths: must go without --tensors_only, which leaves out the params
copy DIR:5 DIR/checkpoint_10.mdl => Checkpoint at 'DIR/checkpoint_10.mdl' already exists
    hint: delete it or choose another name
info "" => a checkpoint must have a name, got ''\nhint: give a file, DIR:STEP or DIR:latest
""")


WORDS = {
    "FOLDER": "give the model_dir of a run",
    "FILE": "name one of the .mdl files in it; cstool checkpoint list shows them",
    "LONG": "x" * 300,
}


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_cannot_be_asked_for_is_one_error(cstool, model_dir, typed, message):
    for word, text in WORDS.items():
        typed, message = typed.replace(word, text), message.replace(word, text)
    refusal = cstool("checkpoint", *shlex.split(typed.replace("DIR", str(model_dir)))).refusal
    assert refusal.replace(str(model_dir), "DIR") == error(message)
