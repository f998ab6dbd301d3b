"""The keys of the older layout, and their names in the trainer layout.

Source: the vendor's conversion in release 2.10; for names of older releases, its history.
"""

from typing import Any

SECTIONS = ("train_input", "eval_input", "model", "optimizer", "sparsity", "runconfig")
"""by which the layout is known"""
OTHER_SECTIONS = ("csconfig", "wandb")
TRAINER_KEYS = ("trainer", "init", "fit", "validate", "validate_all")
"""keys of the newer layout, which a file of this one cannot hold"""

NO_EFFECT = frozenset(
    "dist_addr experimental mode save_losses show_debug_metrics use_appliance_data use_cs_grad_accum variant".split()
)
"""keys of runconfig that have no place in the trainer layout"""
_SAME_NAME = {
    ("backend",): "compile_dir compile_only dist_backend enable_distributed init_method main_process_id sync_batchnorm "
    "validate_only",
    ("backend", "cluster_config"): "cbcore_image credentials_path disable_version_check job_labels job_priority "
    "job_time_sec mgmt_address mgmt_namespace mount_dirs num_csx num_workers_per_csx python_paths",
    ("checkpoint",): "autoload_last_checkpoint disable_strict_checkpoint_loading save_initial_checkpoint",
    ("logging",): "enable_act_frequency log_steps wsc_log_level",
    ("loop",): "eval_frequency eval_steps max_steps num_epochs num_steps steps_per_epoch",
    ("precision",): "precision_opt_level",
    (): "model_dir seed",
}
"""section below trainer.init -> the keys of runconfig that stand there by the same name"""
_OTHER_NAME: dict[str, tuple[str, ...]] = {
    "checkpoint_steps": ("checkpoint", "steps"),
    "logging": ("logging", "log_level"),
    "num_act_servers": ("backend", "cluster_config", "max_act_per_csx"),
    "num_wgt_servers": ("backend", "cluster_config", "max_wgt_servers"),
    "target_device": ("backend", "backend_type"),
}
RUNCONFIG: dict[str, tuple[str, ...]] = dict(
    sorted({**{n: (*at, n) for at, names in _SAME_NAME.items() for n in names.split()}, **_OTHER_NAME}.items())
)
"""key of runconfig -> its place below trainer.init"""
_DEBUG = (
    *"ini debug_args retrace_every_iteration lazy_initialization log_initialization drop_data".split(),
    "fabric_type_blacklist",
    *(f"{role}_memory_gi" for role in "compile_crd execute_crd wrk act cmd wgt chf".split()),
)
CALLBACKS: dict[str, tuple[str, str]] = {
    "transfer_processes": ("GlobalFlags", "csx.performance.transfer_processes"),
    **{name: ("GlobalFlags", f"csx.debug.{name}") for name in _DEBUG},
    "debug_args_path": ("DebugArgsPath", "debug_args_path"),
    "load_checkpoint_states": ("LoadCheckpointStates", "load_checkpoint_states"),
    "max_checkpoints": ("KeepNCheckpoints", "n"),
    "keep_checkpoint_max": ("KeepNCheckpoints", "n"),
    "hf_cache_dir": ("HFCacheDir", "cache_dir"),
}
"""key of runconfig -> callback and its argument"""
SWITCHES: dict[str, str] = {
    "log_input_summaries": "LogInputSummaries",
    "check_loss_values": "CheckLoss",
    "dump_activations": "DumpActivations",
}
"""key of runconfig -> callback that it turns on or off"""
LOGGERS = {name: ("TensorBoardLogger", name) for name in ("summary_dir", "legacy_event_dirs")}
OTHER_RUNCONFIG = ("checkpoint_path", "op_profiler_config")
_PRECISION = (
    "loss_scaling_factor initial_loss_scale steps_per_increase min_loss_scale max_loss_scale max_gradient_norm "
    "max_gradient_value"
)
OPTIMIZER: dict[str, tuple[str, ...]] = {
    **{name: ("precision", name) for name in _PRECISION.split()},
    "log_summaries": ("precision", "log_loss_scale"),
    "grad_accum_steps": ("loop", "grad_accum_steps"),
}
"""key of optimizer -> its place below trainer.init"""
RENAMED = {"weight_decay_rate": "weight_decay", "epsilon": "eps", "use_bias_correction": "correct_bias"}
"""keys of optimizer in releases before 2.0 -> now"""
RENAMED_OF_SCHEDULE = dict.fromkeys(("steps", "decay_steps"), "total_iters")
"""keys of a schedule in releases before 2.0 -> now"""
RUNS = (
    ("fit", "train_dataloader", "train_input", "ckpt_path"),
    ("fit", "val_dataloader", "eval_input", "ckpt_path"),
    ("validate", "val_dataloader", "eval_input", "ckpt_path"),
    ("validate_all", "val_dataloaders", "eval_input", "ckpt_paths"),
)
"""section of trainer, its dataloader, the older section in its place, and the key of the checkpoint to load"""
MODEL_CALLBACKS = (
    ("compression", "WeightCompression", "compressions"),
    ("lora_params", "Lora", "lora_params"),
    ("selective_grad", "SelectiveGrad", "selective_grads"),
)
"""key of model, callback that it became, and its argument"""
MODEL_PRECISION = {"mixed_precision": "enabled", **{name: name for name in ("fp16_type", "precision_opt_level")}}
"""key of model -> key of precision"""
MODEL_NO_EFFECT = ("alibi_implementation", "tf_summary", "use_bfloat16")
"""keys of model in releases before 2.1"""
MODEL_SWITCHES: dict[str, tuple[bool, str, Any]] = {
    "use_position_embedding": (False, "position_embedding_type", None),
    "use_rms_norm": (True, "norm_type", "rmsnorm"),
    "scale_by_layer_index": (True, "scale_qk_dot_by_layer_idx", True),
}
"""switch of model in releases before 2.1 -> its value with an effect, and the key and value of today for it"""
