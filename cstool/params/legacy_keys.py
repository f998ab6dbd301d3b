"""The keys of the older layout, and what they are called in the trainer layout.

Source: the vendor's conversion in release 2.10; for what older releases called otherwise, its history.
"""

from typing import Any

SECTIONS = ("train_input", "eval_input", "model", "optimizer", "sparsity", "runconfig")
"""by which the layout is known"""
OTHER_SECTIONS = ("csconfig", "wandb")
TRAINER_KEYS = ("trainer", "init", "fit", "validate", "validate_all")
"""of the newer layout, which a file of this one cannot hold"""

NO_EFFECT = frozenset(
    "dist_addr experimental mode save_losses show_debug_metrics use_appliance_data use_cs_grad_accum variant".split()
)
"""keys of runconfig that have no place in the trainer layout"""
_CLUSTER = ("backend", "cluster_config")
RUNCONFIG: dict[str, tuple[str, ...]] = {
    "autoload_last_checkpoint": ("checkpoint", "autoload_last_checkpoint"),
    "cbcore_image": (*_CLUSTER, "cbcore_image"),
    "checkpoint_steps": ("checkpoint", "steps"),
    "compile_dir": ("backend", "compile_dir"),
    "compile_only": ("backend", "compile_only"),
    "credentials_path": (*_CLUSTER, "credentials_path"),
    "disable_strict_checkpoint_loading": ("checkpoint", "disable_strict_checkpoint_loading"),
    "disable_version_check": (*_CLUSTER, "disable_version_check"),
    "dist_backend": ("backend", "dist_backend"),
    "enable_act_frequency": ("logging", "enable_act_frequency"),
    "enable_distributed": ("backend", "enable_distributed"),
    "eval_frequency": ("loop", "eval_frequency"),
    "eval_steps": ("loop", "eval_steps"),
    "init_method": ("backend", "init_method"),
    "job_labels": (*_CLUSTER, "job_labels"),
    "job_priority": (*_CLUSTER, "job_priority"),
    "job_time_sec": (*_CLUSTER, "job_time_sec"),
    "log_steps": ("logging", "log_steps"),
    "logging": ("logging", "log_level"),
    "main_process_id": ("backend", "main_process_id"),
    "max_steps": ("loop", "max_steps"),
    "mgmt_address": (*_CLUSTER, "mgmt_address"),
    "mgmt_namespace": (*_CLUSTER, "mgmt_namespace"),
    "model_dir": ("model_dir",),
    "mount_dirs": (*_CLUSTER, "mount_dirs"),
    "num_act_servers": (*_CLUSTER, "max_act_per_csx"),
    "num_csx": (*_CLUSTER, "num_csx"),
    "num_epochs": ("loop", "num_epochs"),
    "num_steps": ("loop", "num_steps"),
    "num_wgt_servers": (*_CLUSTER, "max_wgt_servers"),
    "num_workers_per_csx": (*_CLUSTER, "num_workers_per_csx"),
    "precision_opt_level": ("precision", "precision_opt_level"),
    "python_paths": (*_CLUSTER, "python_paths"),
    "save_initial_checkpoint": ("checkpoint", "save_initial_checkpoint"),
    "seed": ("seed",),
    "steps_per_epoch": ("loop", "steps_per_epoch"),
    "sync_batchnorm": ("backend", "sync_batchnorm"),
    "target_device": ("backend", "backend_type"),
    "validate_only": ("backend", "validate_only"),
    "wsc_log_level": ("logging", "wsc_log_level"),
}
"""key of runconfig -> where it stands below trainer.init"""
_MEMORY = tuple(f"{role}_memory_gi" for role in "compile_crd execute_crd wrk act cmd wgt chf".split())
_DEBUG = (
    "ini",
    "debug_args",
    "retrace_every_iteration",
    "lazy_initialization",
    "log_initialization",
    "drop_data",
    "fabric_type_blacklist",
    *_MEMORY,
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
LOGGERS: dict[str, tuple[str, str]] = {
    "summary_dir": ("TensorBoardLogger", "summary_dir"),
    "legacy_event_dirs": ("TensorBoardLogger", "legacy_event_dirs"),
}
OTHER_RUNCONFIG = ("checkpoint_path", "op_profiler_config")
PRECISION = (
    "loss_scaling_factor",
    "initial_loss_scale",
    "steps_per_increase",
    "min_loss_scale",
    "max_loss_scale",
    "max_gradient_norm",
    "max_gradient_value",
)
"""keys of optimizer that moved to precision"""
RENAMED = {"weight_decay_rate": "weight_decay", "epsilon": "eps", "use_bias_correction": "correct_bias"}
"""keys of optimizer in releases before 2.0 -> now"""
MODEL_CALLBACKS = (
    ("compression", "WeightCompression", "compressions"),
    ("lora_params", "Lora", "lora_params"),
    ("selective_grad", "SelectiveGrad", "selective_grads"),
)
"""key of model, callback that it became, and its argument"""
MODEL_PRECISION = {
    "mixed_precision": "enabled",
    "fp16_type": "fp16_type",
    "precision_opt_level": "precision_opt_level",
}
"""key of model -> key of precision"""
MODEL_NO_EFFECT = ("alibi_implementation", "tf_summary", "use_bfloat16")
"""keys of model in releases before 2.1"""
MODEL_SWITCHES: dict[str, tuple[bool, str, Any]] = {
    "use_position_embedding": (False, "position_embedding_type", None),
    "use_rms_norm": (True, "norm_type", "rmsnorm"),
    "scale_by_layer_index": (True, "scale_qk_dot_by_layer_idx", True),
}
"""switch of model in releases before 2.1 -> the value at which it says something, and what, by today's keys"""
