"""`cstool system`."""

from pathlib import Path

from cstool.model.system import load_system
from cstool.training.commands import system as cli
from cstool.training.verbs import systems
from tests.end_to_end.refusals import error

PARAMS = Path(__file__).parents[3] / "params" / "fc_mnist.yaml"


def test_systems_are_listed(cstool):
    assert cstool("system", "list").stdout == (
        "system  wafer      fabric      PEs                MemoryX  systems at most    power\n"
        "cs1     WSE-1   595 x 593  352,835                   none                1    15 kW\n"
        "cs2     WSE-2   750 x 994  745,500   1.5, 4, 12, 2,400 TB              192  22.8 kW\n"
        "cs3     WSE-3  755 x 1170  883,350  24, 36, 120, 1,200 TB            2,048    23 kW\n"
    )
    listed = cstool("system", "list", "--json").document["systems"]
    assert [system["name"] for system in listed] == ["cs1", "cs2", "cs3"]


def test_a_system_is_shown_number_by_number(cstool, golden):
    stdout = cstool("system", "show", "cs1").said
    assert max(map(len, stdout.splitlines())) <= 100
    golden("cli/system_show.txt", stdout)


def test_what_is_fitted_and_what_is_a_list_are_shown_and_the_document_has_every_number(cstool):
    lines = [" ".join(line.split()) for line in cstool("system", "show", "cs2").stdout.splitlines()]
    assert {"pe.efficiency 0.666 F", "hosts.releases.2.0.norm_s 0.0833 s F"} <= set(lines)
    assert "F fitted to published results, one or two" in lines
    assert "memoryx.units_bytes 1.5e+12, 4e+12, 1.2e+13, 2.4e+15 B R2" in lines
    assert "memoryx.flops 4e+12 FLOP/s C" in lines
    assert {"power_w 22,800 W R1", "idle_power_w 16,100 W R1"} <= set(lines)
    document = cstool("system", "show", "CS2", "--json").document
    cs2 = load_system("cs2")
    found = {number["key"]: number for number in document["numbers"]}
    assert found.keys() == cs2.sources.keys()
    assert found["pe.simd.fmach"]["value"] == 4
    assert found["memoryx.capacity_bytes"]["value"] == 2_400 * 10**12
    assert found["memoryx.units_bytes"]["value"] == [15 * 10**11, 4 * 10**12, 12 * 10**12, 2_400 * 10**12]
    assert found["links.colors"]["status"] == "R1"
    flops = next(each for each in document["derived"] if each["what"].startswith("16-bit"))
    assert (flops["value"], flops["unit"]) == (745_500 * 8 * 0.85e9, "FLOP/s")


def test_a_bad_file_is_one_error_wherever_it_is_named(cstool, folder):
    (folder / "mine.yaml").write_text("extends: cs2\npower: {value: 3, status: C, source: mine}\n")
    message = error("mine.yaml:2: power is not a known key", "did you mean power_w?")
    assert cstool("system", "show", "mine.yaml").refusal == message
    assert cstool("system", "show", "cs4").code == 2
    (folder / "bad.yaml").write_text("extends: cs2\nclock_hz: {value: -1, status: C, source: a plan}\n")
    outcome = cstool("run", "--params", PARAMS, "--compile_only", "--system", "bad.yaml")
    assert (outcome.code, outcome.stderr) == (2, error("bad.yaml:2: clock_hz.value must be greater than 0, got -1"))


def test_this_host_says_who_multiplies_and_how_fast(cstool, monkeypatch):
    found = systems.DescribedHost(
        "znver4",
        2,
        ("avx2", "avx512bf16"),
        (
            systems.HostProvider("numpy", "float32", True, None, "NumPy's BLAS"),
            systems.HostProvider("onednn_float32", "float32", True, 1.094, "oneDNN"),
            systems.HostProvider("onednn", "bfloat16", False, None, "is not installed"),
            systems.HostProvider("emulated", "bfloat16", True, 0.875, "NumPy's BLAS, operands widened to float32"),
        ),
        (("eval 64x10x128:1", {"fma": 0.9}), ("train 12x256x784:1", {"onednn_float32": 1.04, "fma": 1.3})),
    )
    monkeypatch.setattr(cli, "describe_host", lambda: found)
    shown = cstool("system", "show", "host")
    assert shown.stdout == (
        "host: 2 cores of znver4 with avx2, avx512bf16\n\n"
        "products by     operands  here  speed  with what, or why not\n"
        "numpy           float32   yes          NumPy's BLAS\n"
        "onednn_float32  float32   yes   1.09x  oneDNN\n"
        "onednn          bfloat16  no           is not installed\n"
        "emulated        bfloat16  yes   0.88x  NumPy's BLAS, operands widened to float32\n\n"
        "speed: of one thread, over NumPy's float32, measured just now. --precision says which operands a run takes.\n"
        "In float32 a run times its own products, and takes the fastest one.\n\n"
        "timed for runs that began here, over NumPy's (tokens x outputs x inputs: share of the work)\n\n"
        "products              fma  onednn_float32\n"
        "eval 64x10x128:1    0.90x\n"
        "train 12x256x784:1  1.30x           1.04x\n"
    )
    document = cstool("system", "show", "host", "--json").document
    emulated = {"name": "emulated", "precision": "bfloat16", "is_here": True, "speed": 0.875}
    reason = "NumPy's BLAS, operands widened to float32"
    assert document["timed"][0] == {"products": "eval 64x10x128:1", "speeds": {"fma": 0.9}}
    assert document["providers"][3] == {**emulated, "reason": reason}


def test_of_this_host_something_multiplies_in_every_precision():
    found = systems.describe_host()
    here = {provider.precision for provider in found.providers if provider.is_here}
    assert here == {"float32", "bfloat16"}
    assert all((provider.speed or 1.0) > 0 for provider in found.providers)
