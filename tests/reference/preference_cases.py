"""What `make_curves.py` trains, and `make_vendor_curves.py`: pairs, with every kind of loss.

The policy is one of small decoders; the first case has the keys of the vendor's only file for DPO, that of Zephyr 7B.
Policy and reference begin with different weights, so that a reference that is ignored, or trained, shows at once.
"""

from typing import Any

from tests.reference.loss_curve_cases import ADAMW, MODELS, TIED, case, warmed_up
from tests.reference.vendor_curve_cases import _case as vendor_case

Config = dict[str, Any]

_GPT2 = MODELS["gpt2"] | TIED
_MODELS: dict[str, tuple[Config, Config]] = {
    "zephyr": (MODELS["mistral"], {"beta": 0.1}),
    "hinge": (MODELS["mistral"], {"beta": 0.02, "loss_type": "hinge"}),
    "ipo": (_GPT2, {"beta": 0.3, "loss_type": "ipo"}),
    "dpop": (_GPT2, {"beta": 0.05, "loss_type": "dpop", "dpop_penalty_weight": 0.5}),
    "reference_free": (MODELS["falcon_two_norms"], {"beta": 0.05, "reference_free": True}),
}


_OF_OURS: dict[str, tuple[Config, Config]] = {
    "orpo": (_GPT2, {"beta": 0.2, "loss_type": "orpo"}),
    "kto": (MODELS["mistral"], {"beta": 0.3, "loss_type": "kto", "undesirable_weight": 1.5}),
}
"""kinds of loss that the vendor lacks, as the package TRL 1.16 has them"""


def _model(name: str) -> Config:
    policy, settings = {**_MODELS, **_OF_OURS}[name]
    return {"name": "dpo", "dpo": settings, "policy_model": policy}


CASES: dict[str, Config] = {
    name: case(seed, _model(name), {"AdamW": ADAMW}, warmed_up(1.0e-4, 1.0e-3, 3, 7), max_gradient_norm=1.0)
    for seed, name in (*enumerate(_MODELS, start=91), *enumerate(_OF_OURS, start=191))
}
_ADAMW = {"AdamW": {"betas": [0.9, 0.999], "eps": 1.0e-8, "correct_bias": True, "weight_decay": 0.1}}
VENDOR_CASES: dict[str, Config] = {
    name: vendor_case(seed, _model(name), _ADAMW, max_gradient_norm=1.0) for seed, name in enumerate(_MODELS, start=96)
}
