"""The `model` section of DPO: a decoder that learns from pairs of texts, beside a frozen copy of its initial state.

Keys, defaults and rules are the vendor's. Source: its DPO model and loss, 2.10.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from cstool.foundation.yaml_lines.section import NotNegative, Positive, Section, rule_error
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.fields import ModelSection

POLICIES = "bloom falcon gpt2 gpt3 gptj gpt-neox llama LlamaModel mistral mixtral santacoder starcoder".split()
"""models that can be a policy"""
ORPO = "orpo"
"""kind of loss that adds the odds ratio of a pair to the cross entropy of its chosen text"""
KTO = "kto"
"""kind of loss of single answers, each of them desirable or not"""
_LOGPS = ("logps_chosen", "logps_rejected")
_REWARDS = ("rewards_chosen", "rewards_rejected", "rewards_margins")
ACCURACY = "rewards_accuracies"
"""name, in evaluations, of the share of pairs whose chosen text has the greater reward; without a reference, as if that
gave all texts one probability"""
_RATES = ("dropout_rate", "residual_dropout_rate", "attention_dropout_rate", "embedding_dropout_rate")


class DpoSettings(Section):
    """How a loss is made of a pair; `dpop_penalty_weight` is of dpop alone, the other weights are of kto.

    orpo has no reference, kto has one, and single answers in place of pairs; the vendor lacks both.
    """

    beta: Positive = 0.1
    loss_type: Literal["sigmoid", "hinge", "ipo", "dpop", "orpo", "kto"] = "sigmoid"
    reference_free: bool = False
    disable_dropout: bool = True
    dpop_penalty_weight: NotNegative = 5.0
    desirable_weight: Positive = 1.0
    undesirable_weight: Positive = 1.0

    @field_validator("reference_free")
    @classmethod
    def _dpop_has_a_reference(cls, is_free: bool, info: ValidationInfo) -> bool:
        kind = info.data.get("loss_type")
        if is_free and kind in ("dpop", KTO):
            raise rule_error(f"must be false for loss_type {kind}, which holds the policy against its reference")
        return is_free

    @property
    def has_reference(self) -> bool:
        """Whether the first policy stays beside the one that is trained."""
        return not self.reference_free and self.loss_type != ORPO


class DpoParams(ModelSection):
    """A policy, which is trained, and a reference: the same model, which stays as it begins. See `has_reference`.

    Dropout is of the policy alone, and of it only where `disable_dropout` is false.
    """

    name: Literal["dpo"]
    policy_model: DecoderParams
    dpo: DpoSettings

    without_effect = frozenset({"compute_eval_metrics"})

    @field_validator("policy_model")
    @classmethod
    def _can_be_a_policy(cls, model: DecoderParams) -> DecoderParams:
        if model.name not in POLICIES:
            raise rule_error(f"must be one of {', '.join(POLICIES)}, not {model.name}")
        if model.balances:
            rule = "must have no moe.load_balancing_loss_coef: the loss of a pair has no place for a loss of its router"
            raise rule_error(rule, "moe.load_balancing_loss_coef: 0.0 trains the mixture without it")
        return model

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data, defaults filled in."""
        return {**super().dump(), "policy_model": self.policy_model.dump()}

    @property
    def policy(self) -> DecoderParams:
        """The policy as it is trained."""
        return self.reference if self.dpo.disable_dropout else self.policy_model

    @property
    def reference(self) -> DecoderParams:
        """The policy without dropout."""
        return self.policy_model.model_copy(update=dict.fromkeys(_RATES, 0.0))

    @property
    def extras(self) -> tuple[str, ...]:
        """Further metrics of evaluations."""
        if self.dpo.loss_type == KTO:
            return ("kl",)
        return (*_REWARDS, *_LOGPS) if self.dpo.has_reference else _LOGPS

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of evaluations."""
        return ("loss", ACCURACY, *self.extras)

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Factors of muP on the learning rate, by group of weights."""
        return self.policy_model.rate_factors

    @property
    def max_position_embeddings(self) -> int:
        """Tokens of a text, at most."""
        return self.policy_model.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.policy_model.vocab_size
