"""The vendor's tutorial of fine-tuning: files of preprocessing, a converted base, params, all with its keys."""

import json
from pathlib import Path

import pytest
import yaml

from tests.reference import hf_models as hf
from tests.reference.preprocessing_cases import HOOKS, write_tokenizer

CODE = HOOKS.removesuffix("hooks:")
DATA = f"""
setup:
    data: {{type: "huggingface", source: "summaries", split: "SPLIT"}}
    mode: "finetuning"
    output_dir: "tutorial/SPLIT_data"
    processes: 1
processing:
    custom_tokenizer: {CODE}custom_tokenizer_example.CustomLlama3Tokenizer:CustomLlama3Tokenizer
    tokenizer_params: {{pretrained_model_name_or_path: "llama"}}
    write_in_batch: True
    read_hook: "{HOOKS}prompt_completion_text_read_hook"
    read_hook_kwargs: {{prompt_key: "document", completion_key: "summary"}}
    max_seq_length: 32
    use_ftfy: True
"""
MODEL = """
trainer:
  init:
    model_dir: tutorial/model
    backend: {backend_type: CSX, cluster_config: {num_csx: 1}}
    callbacks: [ComputeNorm: {}]
    checkpoint: {steps: 18}
    logging: {log_steps: 1}
    loop: {eval_steps: 5, max_steps: 18}
    model:
      name: "llama"
      attention_dropout_rate: 0.0
      attention_module: multiquery_attention
      attention_type: scaled_dot_product
      dropout_rate: 0.0
      embedding_dropout_rate: 0.0
      embedding_layer_norm: false
      extra_attention_params: {num_kv_groups: 2}
      filter_size: 96
      hidden_size: 64
      initializer_range: 0.02
      layer_norm_epsilon: 1.0e-05
      loss_scaling: num_tokens
      loss_weight: 1.0
      max_position_embeddings: 32
      nonlinearity: swiglu
      norm_type: rmsnorm
      num_heads: 8
      num_hidden_layers: 2
      pos_scaling_factor: 1.0
      position_embedding_type: rotary
      rope_theta: 10000.0
      rotary_dim: 8
      share_embedding_weights: false
      use_bias_in_output: false
      use_ffn_bias: false
      use_ffn_bias_in_attention: false
      use_projection_bias_in_attention: false
      vocab_size: 268
    optimizer: {AdamW: {betas: [0.9, 0.95], correct_bias: true, weight_decay: 0.01}}
    precision:
      enabled: true
      fp16_type: cbfloat16
      log_loss_scale: true
      loss_scaling_factor: dynamic
      max_gradient_norm: 1.0
    schedulers: [CosineDecayLR: {end_learning_rate: 1.0e-03, initial_learning_rate: 5.0e-03, total_iters: 18}]
    seed: 1
  fit:
    train_dataloader:
      batch_size: 8
      data_dir: tutorial/train_data
      data_processor: GptHDF5MapDataProcessor
      num_workers: 8
      persistent_workers: true
      prefetch_factor: 10
      shuffle: true
      shuffle_seed: 1337
    val_dataloader: &id001
      batch_size: 1
      data_dir: tutorial/validation_data
      data_processor: GptHDF5MapDataProcessor
      num_workers: 8
      shuffle: false
    ckpt_path: tutorial/base.mdl
  validate: {val_dataloader: *id001}
  validate_all: {val_dataloaders: *id001}
"""


@pytest.mark.takes("a run of 18 steps with an evaluation, as the tutorial has it")
def test_the_tutorial_runs_from_records_to_a_tuned_model(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tokenizer(Path("llama"), template="none", begins=True)
    Path("summaries").mkdir()
    for split, count in (("train", 144), ("validation", 10)):
        lines = [{"id": n, "document": f"{n % 7} and {n % 5}", "summary": f"{n % 7 + n % 5}"} for n in range(count)]
        Path(f"summaries/{split}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        Path(f"{split}.yaml").write_text(DATA.replace("SPLIT", split))
        made = cstool("data", "preprocess", f"{split}.yaml", "--json").document
        assert (made["parts"]["train"]["records"], made["parts"]["train"]["samples"]) == (count, count)
    config = {**hf.LLAMA_CONFIG, "vocab_size": 268}
    hf.write_hf(Path("hf"), config, hf.llama_tensors(config))
    assert cstool("checkpoint", "convert", "hf", "tutorial/base.mdl").code == 0
    Path("model.yaml").write_text(MODEL)
    # The converted base describes the same model as the tutorial's params file.
    base, asked = (yaml.safe_load(Path(name).read_text()) for name in ("tutorial/base.yaml", "model.yaml"))
    for key in ("hidden_size", "filter_size", "num_heads", "vocab_size", "rope_theta"):
        assert base["trainer"]["init"]["model"][key] == asked["trainer"]["init"]["model"][key]
    run = cstool("run", "-p", "model.yaml", "--lanes", 1, "--mode", "train_and_eval", "--json").document
    assert run["last_step"] == 18
    assert run["losses"][-1] < 0.5 * run["losses"][0]
    # Five samples, each a digit and the end.
    assert (run["evaluations"][-1]["samples"], run["evaluations"][-1]["tokens"]) == (5, 10)
