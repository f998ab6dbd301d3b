"""Train adapters by the package PEFT, for losses and adapters to be compared with; see `peft_curve_cases.py`.

The packages are not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1 peft==0.21.2
    python -m tests.reference.make_peft_curves

writes `peft_curves.json` beside this file: of a case the losses of twenty steps of torch's AdamW in float32, and some
numbers of each trained tensor after them, by its name in a folder of PEFT's.
"""

import tempfile
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch.nn import functional

from tests.reference.peft_curve_cases import ADAMW, CASES, EVERY, RECORDED, STEPS, Case, arrays_of, write_case
from tests.reference.recorded_file import as_text, nine_digits


def trained(case: Case, folder: Path) -> dict[str, Any]:
    """Return what is recorded of a case."""
    write_case(folder, case)
    of_classes = case.kind == "encoders"
    kinds = transformers.AutoModelForSequenceClassification if of_classes else transformers.AutoModelForCausalLM
    base = kinds.from_pretrained(folder / "hf", attn_implementation="eager", dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, folder / "peft", is_trainable=True).train()
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    keys = {name: ADAMW[name] for name in ("betas", "eps", "weight_decay")}
    optimizer = torch.optim.AdamW(weights, lr=ADAMW["learning_rate"], **keys)
    batches, losses = {name: torch.from_numpy(array.copy()) for name, array in arrays_of(case).items()}, []
    for step in range(STEPS):
        batch = {name: array[step % len(array)] for name, array in batches.items()}
        given = {name: batch[name].long() for name in ("input_ids", "attention_mask") if name in batch}
        logits = model(**given).logits
        entropies = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1).long(), reduction="none"
        )
        loss = (entropies * batch["mask"].reshape(-1)).sum() / batch["mask"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    after = {name: array.detach().numpy().reshape(-1) for name, array in peft.get_peft_model_state_dict(model).items()}
    return {
        "losses": nine_digits(losses),
        "after": {name: nine_digits(array[::EVERY].tolist()) for name, array in after.items()},
    }


def main() -> None:
    """Write the file."""
    torch.set_num_threads(1)
    cases = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = trained(case, Path(folder))
    made_by = f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    RECORDED.write_text(as_text({"made_by": made_by, "cases": cases}))


if __name__ == "__main__":
    main()
