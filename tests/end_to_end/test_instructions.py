"""Fine-tuning on conversations: from records to a loss of what the assistant says alone."""

import json

import h5py
import pytest

from cstool.training.data import InstructionPlan, prepare_instructions
from tests.end_to_end.runs import SEQUENCE, gpt_params, run_file
from tests.unit.training.data.chat_samples import messages


def chats(folder, *, packing):
    """Prepare 200 conversations; return the folder of the data set."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [(f"{n % 9}+{n % 7}?", f"It is {n % 9 + n % 7}.", "Sure?", "Yes.") for n in range(200)]
    lines = (json.dumps({"messages": messages(*text[: 2 + 2 * (n % 3 == 0)])}) for n, text in enumerate(texts))
    (folder / "chats.jsonl").write_text("".join(f"{line}\n" for line in lines))
    plan = InstructionPlan(SEQUENCE, packing=packing, val_fraction=0.2)
    prepare_instructions([folder / "chats.jsonl"], folder / packing, plan)
    return folder / packing


def params(folder, data, batch_size, **changes):
    loaders = {
        f"fit__{name}_dataloader": {
            "data_processor": "GptHDF5MapDataProcessor",
            "data_dir": str(data / name),
            "batch_size": batch_size,
            "use_vsl": data.name == "best_fit",
        }
        for name in ("train", "val")
    }
    return gpt_params(folder, data, init__model__vocab_size=256, init__loop={"max_steps": 20}, **loaders, **changes)


@pytest.mark.takes("a run of twenty steps and three evaluations")
def test_the_loss_falls_and_is_of_the_assistants_text_alone(tmp_path):
    packed, single = (chats(tmp_path, packing=packing) for packing in ("best_fit", "none"))
    trained = run_file(params(tmp_path / "run", packed, 4))
    assert trained.losses[0] > 5
    assert trained.losses[-1] < 0.5 * trained.losses[0]

    def loss(data, batch_size):
        found = run_file(params(tmp_path / "run", data, batch_size), mode="eval").evaluations[-1]
        return found["loss"], found["tokens"]

    (expected, tokens), (found, as_many) = loss(packed, 1), loss(single, 1)
    assert found == pytest.approx(expected, rel=1e-5)
    with h5py.File(packed / "val" / "data_00000.h5", "r+") as file:
        rows = file["data"][:]
        assert tokens == as_many == rows[:, 1].sum()
        assert 0 < tokens < (rows[:, 0] > 0).sum()
        # Labels that the user's text would have.
        rows[:, 2][rows[:, 1] == 0] = 7
        file["data"][:] = rows
    assert loss(packed, 1)[0] == expected
