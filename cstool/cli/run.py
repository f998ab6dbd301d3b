"""`cstool run`: train and evaluate what a params file asks for."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cstool.cli.command import Command
from cstool.cli.completion import complete_artifact, complete_checkpoint, complete_params, complete_system
from cstool.cli.infer_options import (
    BatchSizeOption,
    InferFlags,
    MaxTokensOption,
    NoCacheOption,
    NoSpecialTokensOption,
    OutputOption,
    PromptFileOption,
    PromptOption,
    StopOption,
    TemperatureOption,
    TokenizerOption,
    TopKOption,
    TopPOption,
    TruncatePromptOption,
)
from cstool.cli.report import DebugOption, errors_as_messages, missing_option
from cstool.verbs.asked import check_trace_file, load_trainers, typed

EPILOG = """\
Example: cstool run --params gpt_tiny --num_steps 100
Example: cstool run --params gpt_tiny --mode eval --num_csx 2
Example: cstool run --params gpt_tiny --mode infer --prompt "def " --max_tokens 100"""
LIST_FLAGS = ("--set", "--mount_dirs", "--python_paths", "--job_labels")


class Mode(StrEnum):
    """What to do with the model."""

    train = "train"
    eval = "eval"
    train_and_eval = "train_and_eval"
    eval_all = "eval_all"
    infer = "infer"


class SparseKernels(StrEnum):
    """How kernels are chosen for sparse weights."""

    auto = "auto"
    always = "always"
    never = "never"
    measure = "measure"


class MemoryxChoice(StrEnum):
    """Where MemoryX keeps weights and optimizer state."""

    auto = "auto"
    ram = "ram"
    file = "file"


class ExecutionModeChoice(StrEnum):
    """How a model uses the wafer."""

    auto = "auto"
    pipelined = "pipelined"
    weight_streaming = "weight_streaming"


class RecomputeChoice(StrEnum):
    """When activations are computed again on the modelled wafer."""

    needed = "needed"
    fastest = "fastest"


RecomputeOption = Annotated[
    RecomputeChoice,
    typer.Option(
        "--recompute",
        help="Modelled wafer: compute activations again where nothing fits otherwise, or wherever that is faster.",
    ),
]


SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the params file, by its dotted path."),
]
NumCsxOption = Annotated[int | None, typer.Option("--num_csx", metavar="N", help="Number of CSX systems.")]
SystemOption = Annotated[
    str,
    typer.Option(
        "--system",
        metavar="NAME|FILE",
        help="What each CSX is: cs1, cs2, cs3, or a system file.",
        autocompletion=complete_system,
    ),
]
ExecutionModeOption = Annotated[
    ExecutionModeChoice, typer.Option("--execution_mode", help="How the model uses the modelled wafer.")
]
CompileDirOption = Annotated[
    Path | None,
    typer.Option(
        "--compile_dir", "-c", metavar="DIR", help="Folder of artifacts.", show_default="MODEL_DIR/cached_compile"
    ),
]


RunTraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Record what happens on this host in steps 2 to 4 of the run (in all, if it has fewer than 4) into a "
        ".json file that Perfetto opens.",
        show_default=False,
    ),
]


class LogLevel(StrEnum):
    """How much to log."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class RunCommand(Command):
    """A command whose list flags take several values in a row, as the vendor's do: `--set a=1 b=2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after writing each list flag once per value."""
        return super().parse_args(ctx, spread_lists(args))


def spread_lists(arguments: list[str]) -> list[str]:
    """Return the arguments with a list flag repeated before each further value of it."""
    spread: list[str] = []
    flag = ""
    for argument in arguments:
        if argument.startswith("-"):
            flag = argument
        elif flag.replace("-", "_").replace("__", "--", 1) in LIST_FLAGS and spread[-1] != flag:
            spread.append(flag)
        spread.append(argument)
    return spread


def parse_lanes(text: str) -> int | None:
    """Return the number of lanes that was asked for, or None for `auto`.

    Raises:
        typer.BadParameter: neither `auto` nor a positive count.
    """
    if text == "auto":
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"must be auto or a positive count, got {text}", param_hint="--lanes")


def run(
    context: typer.Context,
    params: Annotated[
        Path | None,
        typer.Option(
            "--params",
            "-p",
            metavar="FILE",
            help="Params file (YAML), or the name of a stock one; to infer, a checkpoint has them as well.",
            show_default=False,
            autocompletion=complete_params,
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option("--mode", "-m", help="What to do.")] = Mode.train,
    model_dir: Annotated[
        Path | None,
        typer.Option("--model_dir", "-o", metavar="DIR", help="Folder of checkpoints and logs."),
    ] = None,
    num_csx: NumCsxOption = None,
    checkpoint_path: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint_path",
            metavar="CHECKPOINT",
            help="Start from this one (a file, DIR:STEP or DIR:latest), not from the latest.",
            autocompletion=complete_checkpoint,
        ),
    ] = None,
    load_checkpoint_states: Annotated[
        str | None,
        typer.Option(
            "--load_checkpoint_states",
            metavar="STATES",
            help="Comma-separated parts of the checkpoint to load; model loads the weights only.",
        ),
    ] = None,
    disable_strict_checkpoint_loading: Annotated[
        bool | None,
        typer.Option(
            "--disable_strict_checkpoint_loading",
            help="Load a checkpoint even if it lacks weights or has others.",
            show_default=False,
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max_steps", metavar="N", help="Train up to this step, counted from step 0.")
    ] = None,
    num_steps: Annotated[
        int | None,
        typer.Option("--num_steps", metavar="N", help="Train this many steps from here on; wins over --max_steps."),
    ] = None,
    eval_steps: Annotated[
        int | None, typer.Option("--eval_steps", metavar="N", help="Batches of an evaluation.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")] = None,
    set_: SetOption = None,
    system: SystemOption = "cs2",
    execution_mode: ExecutionModeOption = ExecutionModeChoice.auto,
    recompute: RecomputeOption = RecomputeChoice.fastest,
    compile_dir: CompileDirOption = None,
    compile_only: Annotated[
        bool | None, typer.Option("--compile_only", help="Compile, do not run.", show_default=False)
    ] = None,
    validate_only: Annotated[
        bool | None,
        typer.Option("--validate_only", help="Check that every op has a kernel, do not compile.", show_default=False),
    ] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(
            "--artifact", metavar="FILE", help="Run what was compiled before.", autocompletion=complete_artifact
        ),
    ] = None,
    lanes: Annotated[
        str, typer.Option("--lanes", metavar="auto|N", help="Threads of this host. Results do not depend on it.")
    ] = "auto",
    sparse_kernels: Annotated[
        SparseKernels,
        typer.Option(
            "--sparse_kernels",
            help="Which kernels compute with sparse weights; auto: the faster ones, as measured here once.",
        ),
    ] = SparseKernels.auto,
    memoryx: Annotated[
        MemoryxChoice | None,
        typer.Option(
            "--memoryx",
            help="Where weights and optimizer state are; auto: in a file from half of the free memory on.",
            show_default=False,
        ),
    ] = None,
    memoryx_memory: Annotated[
        str | None,
        typer.Option(
            "--memoryx_memory",
            metavar="SIZE",
            help="What the buffers of that file may take, 2GiB if not said.",
            show_default=False,
        ),
    ] = None,
    trace: RunTraceOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    stop: StopOption = None,
    tokenizer: TokenizerOption = None,
    truncate_prompt: TruncatePromptOption = None,
    no_kv_cache: NoCacheOption = None,
    no_special_tokens: NoSpecialTokensOption = None,
    batch_size: BatchSizeOption = None,
    output: OutputOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout, the log on stderr.")
    ] = False,
    logging: Annotated[
        LogLevel | None,
        typer.Option("--logging", case_sensitive=False, metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR."),
    ] = None,
    debug: DebugOption = False,
    num_workers_per_csx: Annotated[int | None, typer.Option("--num_workers_per_csx", hidden=True)] = None,
    mount_dirs: Annotated[list[str] | None, typer.Option("--mount_dirs", hidden=True)] = None,
    python_paths: Annotated[list[str] | None, typer.Option("--python_paths", hidden=True)] = None,
    job_labels: Annotated[list[str] | None, typer.Option("--job_labels", hidden=True)] = None,
    disable_version_check: Annotated[bool | None, typer.Option("--disable_version_check", hidden=True)] = None,
) -> None:
    """Train or evaluate the model of a params file, or let it write.

    Without a checkpoint given, a run continues from the latest one in its model_dir.
    Only flags that are typed override the file. A file with several trainers runs them in order.
    """
    flags = typed(
        "--",
        model_dir=model_dir,
        num_csx=num_csx,
        max_steps=max_steps,
        num_steps=num_steps,
        eval_steps=eval_steps,
        seed=seed,
        memoryx=None if memoryx is None else memoryx.value,
        memoryx_memory=memoryx_memory,
        logging=None if logging is None else logging.value,
        disable_strict_checkpoint_loading=disable_strict_checkpoint_loading,
        compile_dir=compile_dir,
        compile_only=compile_only,
        validate_only=validate_only,
        num_workers_per_csx=num_workers_per_csx,
        mount_dirs=mount_dirs,
        python_paths=python_paths,
        job_labels=job_labels,
        disable_version_check=disable_version_check,
    )
    lane_count = parse_lanes(lanes)
    asked = InferFlags(
        prompt=prompt,
        prompt_file=prompt_file,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=stop,
        tokenizer=tokenizer,
        truncate_prompt=truncate_prompt,
        no_kv_cache=no_kv_cache,
        no_special_tokens=no_special_tokens,
        batch_size=batch_size,
        output=output,
    )
    with errors_as_messages(debug):
        if mode is Mode.infer:
            asked.check_others(context)
        else:
            asked.check_mode(mode.value)
        if trace is not None:
            check_trace_file(trace)
        if params is not None:
            trainers = load_trainers(params, set_ or (), flags)
        elif mode is Mode.infer and checkpoint_path is not None:
            from cstool.verbs.answer import trained_params

            checkpoint_path, found = trained_params(checkpoint_path, set_ or (), flags)
            trainers = (found,)
        else:
            raise missing_option(context, "--params", "-p")
        if mode is Mode.infer:
            from cstool.cli.infer import infer

            # Of several trainers the last one has the model that the file comes to.
            infer(trainers[-1], asked, checkpoint_path=checkpoint_path, lanes=lane_count, as_json=as_json)
            return
        from cstool.cli.command import same_command
        from cstool.cli.render import print_json
        from cstool.cli.screen import screen_on
        from cstool.verbs.run import RunRequest, run_all

        request = RunRequest(
            mode.value,
            checkpoint_path,
            load_checkpoint_states,
            system,
            execution_mode.value,
            recompute.value,
            artifact,
            lane_count,
            sparse_kernels.value,
            trace,
        )
        stream = sys.stderr if as_json else sys.stdout
        results = run_all(trainers, request, lambda: screen_on(stream), command=same_command(context))
        if as_json:
            documents = [result.as_dict() for result in results]
            print_json(documents[0] if len(trainers) == 1 else {"trainers": documents})
