"""The artifact as a file: the same bytes for the same artifact, the same artifact from its bytes."""

import dataclasses
import hashlib
import json
import os
import types
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cstool.foundation.errors import ArtifactError
from cstool.model import ir
from cstool.model.ir import Artifact, artifact_text, plain_digest, read_artifact, write_artifact
from cstool.model.ir._plain_data import LEFT_OUT, from_plain
from tests.examples import examples
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.model.ir.artifacts import SYSTEM, pipelined_artifact, streaming_artifact

ROOT = Path(__file__).parents[4]
ARTIFACTS = {"pipelined": pipelined_artifact(), "streaming": streaming_artifact()}
BOTH = pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
SCALARS = {
    str: st.text().filter(lambda text: text not in ("inf", "-inf")),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
}
ATTRIBUTES = st.recursive(
    st.one_of(st.none(), *SCALARS.values()), lambda items: st.lists(items, max_size=3).map(tuple), max_leaves=5
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, whatever a legal artifact would have there."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return ATTRIBUTES
    if origin in (Union, types.UnionType):
        return st.one_of(st.none(), *(values_of(arg) for arg in args if arg is not type(None)))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(arg) for arg in args))
    if origin is Mapping:
        return st.dictionaries(SCALARS[str], values_of(args[1]), max_size=3).map(MappingProxyType)
    if dataclasses.is_dataclass(hint):
        fields = {name: values_of(each) for name, each in get_type_hints(hint).items()}
        return st.builds(hint, **fields | {n: st.just(value) for (of, n), value in LEFT_OUT.items() if of is hint})
    return st.sampled_from(hint) if issubclass(hint, Enum) else SCALARS[hint]


@examples(50)
@given(values_of(Artifact))
def test_whatever_is_written_is_read(artifact):
    plain = json.loads(artifact_text(artifact))
    assert plain.pop("digest") == ir.artifact_digest(artifact)
    read = from_plain(plain, Artifact)
    assert read == artifact
    assert artifact_text(read) == artifact_text(artifact)


@pytest.mark.parametrize("name", ["pipelined", *FAMILIES])
def test_an_artifact_is_read_as_it_was_written(name, tmp_path):
    artifact = ARTIFACTS.get(name) or streaming_artifact(decoder(layers=2, **FAMILIES[name]))
    write_artifact(artifact, tmp_path / "a.json")
    assert read_artifact(tmp_path / "a.json") == artifact
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@BOTH
def test_the_text_is_sorted_narrow_json_whose_digest_is_that_of_everything_else(artifact):
    text = artifact_text(artifact)
    plain = json.loads(text)
    assert json.dumps(plain) == json.dumps(json.loads(json.dumps(plain, sort_keys=True)))
    assert text.endswith("}\n")
    assert max(map(len, text.splitlines())) <= 120
    stated, rest = plain.pop("digest"), json.dumps(plain, sort_keys=True, separators=(",", ":"))
    assert stated == hashlib.sha256(rest.encode()).hexdigest()


def test_the_text_of_a_small_artifact(golden):
    golden("ir/artifact.json", artifact_text(pipelined_artifact(fc_mnist())))


def test_long_lists_of_numbers_stand_side_by_side():
    artifact = replace(streaming_artifact(), reasons=())
    op = artifact.graph.segments[0].ops[0]
    op = replace(op, attributes=MappingProxyType({"frequencies": tuple(n / 8 for n in range(64))}))
    segment = replace(artifact.graph.segments[0], ops=(op,))
    lines = artifact_text(replace(artifact, graph=replace(artifact.graph, segments=(segment,)))).splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip() == '"frequencies": [')
    end = next(n for n in range(start, len(lines)) if lines[n].strip() == "]")
    numbers = ", ".join(str(n / 8) for n in range(64))
    assert " ".join(line.strip() for line in lines[start + 1 : end]) == numbers
    assert end - start - 1 == 4, "lines of some 110 columns"


def test_equal_artifacts_have_equal_text_whatever_the_order_of_keys_and_the_sources_of_numbers():
    artifact = streaming_artifact()
    simd = MappingProxyType(dict(reversed(SYSTEM.pe.simd.items())))
    sources = MappingProxyType({"clock_hz": ("X", "someone")})
    system = replace(SYSTEM, pe=replace(SYSTEM.pe, simd=simd), power_w=23000, sources=sources)
    turned = replace(artifact, inputs=dict(reversed(artifact.inputs.items())), system=system)
    assert turned == artifact
    assert artifact_text(turned) == artifact_text(artifact)


def test_numbers_that_are_none_and_strings_that_read_as_numbers_are_not_written():
    with pytest.raises(ValueError, match="^NaN cannot be written$"):
        artifact_text(streaming_artifact(system=replace(SYSTEM, clock_hz=float("nan"))))
    first = decoder().segments[0]
    odd = replace(first, ops=(replace(first.ops[0], attributes={"a": "inf"}),))
    with pytest.raises(ValueError, match="^an attribute must be a number, a string, .*, got 'inf'$"):
        ir.plain_data(replace(decoder(), segments=(odd,)))


def expect(call: Any, message: str, hint: str | None = None) -> None:
    with pytest.raises(ArtifactError) as caught:
        call()
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (message, hint, 2)


def test_where_a_link_leads_is_written_and_what_is_no_file_is_not(tmp_path):
    missing, device = tmp_path / "missing" / "a.json", Path("/dev/null")
    for path, got in ((missing, ": No such file or directory"), *((p, " what is no file") for p in (tmp_path, device))):
        message = f"{path}: must be a file that can be written, got{got}"
        expect(lambda path=path: write_artifact(streaming_artifact(), path), message)
    assert device.is_char_device()
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_artifact(streaming_artifact(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert read_artifact(tmp_path / "real.json") == streaming_artifact()


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    message = f"{path}: must be a file that can be written, got: No space left on device"
    expect(lambda: write_artifact(streaming_artifact(), path), message)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a.json": "old"}


@pytest.fixture
def path(tmp_path) -> Path:
    write_artifact(streaming_artifact(), tmp_path / "a.json")
    return tmp_path / "a.json"


def rewrite(path: Path, change: Any) -> None:
    """Change the plain data of a file, with its digest stated anew."""
    plain = json.loads(path.read_text())
    del plain["digest"]
    change(plain)
    path.write_text(json.dumps({**plain, "digest": plain_digest(plain)}))


def test_a_file_from_before_stragglers_were_known_is_read_as_it_was(path):
    rewrite(path, lambda plain: plain["system"]["swarmx"].pop("straggler_share"))
    assert read_artifact(path).system.swarmx == replace(SYSTEM.swarmx, straggler_share=0.0)


CUT, WRITES = "it is cut short or damaged: compile again", "`cstool compile` writes artifacts"


def test_reading_what_is_not_there(tmp_path):
    for path, got in ((tmp_path / "a.json", "No such file or directory"), (tmp_path, "Is a directory")):
        message = f"{path}: must be an artifact that can be read, got: {got}"
        expect(lambda path=path: read_artifact(path), message, WRITES)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "Expecting value (line 1)"),
        ('{"schema": 1,\n', "Expecting property name enclosed in double quotes (line 2)"),
        ('{"schema": NaN}', "a number or a nesting that cannot be"),
        ('{"schema": 1e999}', "a number or a nesting that cannot be"),
        ("[" * 100_000, "a number or a nesting that cannot be"),
        ("\xff\xfe\xfd", "a number or a nesting that cannot be"),
        ("[]", None),
        ("1", None),
        ("{}", None),
        ('"schema"', None),
    ],
    ids=["empty", "cut", "nan", "infinite", "nested", "bytes", "list", "number", "object", "string"],
)
def test_reading_what_is_no_json_or_other_json(text, got, path):
    path.write_bytes(text.encode("latin-1"))
    rule, hint = (f"a JSON document, got: {got}", CUT) if got else ("an artifact, got other JSON", WRITES)
    expect(lambda: read_artifact(path), f"{path}: must be {rule}", hint)


@BOTH
@given(data=st.data())
@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_damaged_is_one_error_or_the_same(artifact, tmp_path, data):
    text = artifact_text(artifact).encode()
    at = data.draw(st.integers(0, len(text) - 1), "at")
    gone = data.draw(st.sampled_from([0, 1, 1, 1, 40, len(text)]), "bytes gone")
    put = data.draw(st.one_of(st.binary(max_size=2), st.sampled_from([b'"', b"[", b"}", b",", b"9", b"1e9", b"null"])))
    path = tmp_path / "a.json"
    path.write_bytes(text[:at] + put + text[at + gone :])
    try:
        found: Artifact | str = read_artifact(path)
    except ArtifactError as error:
        found = error.message
    if isinstance(found, Artifact):
        assert found == artifact
    else:
        assert "\n" not in found
        assert len(found) < len(str(path)) + 200


@pytest.mark.parametrize("depth", [300, 980, 3_000, 100_000])
def test_a_deep_nesting_is_one_error(depth, path):
    whole = json.loads(path.read_text())
    for key in ("schema", "cstool", "digest", "reasons"):
        plain = {**whole, **({"schema": 3} if key == "cstool" else {}), key: "deep"}
        path.write_text(json.dumps(plain).replace('"deep"', "[" * depth + "]" * depth))
        with pytest.raises(ArtifactError) as caught:
            read_artifact(path)
        assert len(caught.value.message) < len(str(path)) + 200


@pytest.mark.parametrize("digest", ["as it was", None])
def test_reading_what_was_edited(digest, path):
    plain = json.loads(path.read_text())
    stated = plain.pop("digest")
    plain["num_csx"] = 1
    path.write_text(json.dumps(plain if digest is None else {**plain, "digest": stated}))
    expect(
        lambda: read_artifact(path),
        f"{path}: must be as it was written (digest {str(digest and stated)[:8]}), "
        f"got other content (digest {plain_digest(plain)[:8]})",
        "artifacts cannot be edited: change the params and compile again",
    )


NESTED: list[Any] = []
for _ in range(800):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain.update(schema=1, cstool="0.0"), "must have schema 4, got 1, written by cstool 0.0"),
        (lambda plain: plain.update(schema=1) or plain.pop("cstool"), "must have schema 4, got 1"),
        (lambda plain: plain.pop("num_csx"), "num_csx: must be given, got nothing"),
        (lambda plain: plain["streaming"]["layout"].pop("rows"), "streaming.layout.rows: must be given, got nothing"),
        (lambda plain: plain.update(color="red"), "color: must be a known field of Artifact, got another"),
        (lambda plain: plain.update(num_csx="2"), "num_csx: must be a whole number, got '2'"),
        (lambda plain: plain.update(num_csx=True), "num_csx: must be a whole number, got True"),
        (lambda plain: plain["system"].update(clock_hz=1), "system.clock_hz: must be a number with a point, got 1"),
        (lambda plain: plain.update(mode="fast"), "mode: must be one of pipelined, weight_streaming, got 'fast'"),
        (lambda plain: plain.update(reasons="none"), "reasons: must be a list, got 'none'"),
        (lambda plain: plain.update(memoryx=[]), "memoryx: must be an object, got []"),
        (lambda plain: plain["graph"]["inputs"][1].update(name=3), "graph.inputs.1.name: must be a string, got 3"),
        (lambda plain: plain["inputs"].update(a=None), "inputs.a: must be a string, got None"),
        (lambda plain: plain["pipelined"]["replicas"].append(3), "pipelined.replicas: must be a list of 2, got 3"),
        (
            lambda plain: plain["graph"]["segments"][0]["ops"][0]["attributes"].update(a=NESTED),
            "must be a legal artifact, got: a nesting that cannot be",
        ),
        (
            lambda plain: plain.update(micro_batch_size=3),
            "must be a legal artifact, got: 2 micro-batches of at most 3 are not 8 samples",
        ),
    ],
)
def test_reading_what_the_schema_does_not_know(change, message, path):
    if message.startswith("pipelined"):
        write_artifact(pipelined_artifact(), path)
    rewrite(path, change)
    expect(lambda: read_artifact(path), f"{path}: {message}", "compile again")
