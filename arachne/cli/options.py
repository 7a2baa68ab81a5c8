"""Options that several commands share, and their values. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.shell_completion import CompletionItem

from arachne.cli.border import HarmlessOption, PluginName, harmless_option
from arachne.cli.outputs import LOG_FILE, remembered_option
from arachne.errors import UsageError
from arachne.model.lazy import MEMORY, is_lazy
from arachne.plugins.table import BACKENDS, Table
from arachne.text import size_text

if TYPE_CHECKING:
    from arachne.data.labelled import LabelledData
    from arachne.model.backend import ModelBackend
    from arachne.model.values import Array, Inputs
    from arachne.tasks import Task

Command = TypeVar("Command", bound=Callable[..., Any])


class Size(click.ParamType[int]):
    """A number of bytes, such as `500MB` or `2GiB`."""

    name = "size"
    UNITS: ClassVar = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

    LEAST: ClassVar = 10**6

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?b|)", str(value).strip().lower())
        if parts is None:
            self.fail(f"expected a size such as 500MB or 2GiB, got '{value}'", param, ctx)
        size = int(float(parts[1]) * self.UNITS[parts[2]])
        if size < self.LEAST:
            self.fail(f"{value} is too little to work with; give 1MB or more", param, ctx)
        return size


class Share(click.ParamType[float]):
    """A share of 1, such as `0.5%` or `0.005`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from arachne.choose.budget import read_share

        return float(value) if isinstance(value, (int, float)) else read_share(str(value))


class Duration(click.ParamType[float]):
    """A number of seconds, such as `60s`, `2min`, `2m` or `90`."""

    name = "duration"
    UNITS: ClassVar = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", str(value).strip().lower())
        if parts is None:
            self.fail(f"expected a duration such as 60s or 2min, got '{value}'", param, ctx)
        return float(parts[1]) * self.UNITS[parts[2]]


SIZE = Size()
DURATION = Duration()
SHARE = Share()

MOST_CLASSES = 12
"""How many classes are listed on one line."""


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, shown by `--help` in this order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of files, which the shell knows best."""
    return [CompletionItem(incomplete, type="file")]


def complete_names(table: Table) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete the name of a plug-in of one kind."""
    return lambda context, parameter, incomplete: [name for name in table.names() if name.startswith(incomplete)]


SHAPE = re.compile(r"\d+(x\d+)+")
"""The sizes of an input, such as `1x3x320x320`."""

feed_option = click.option(
    "--feed",
    "--input-shape",
    "feeds",
    multiple=True,
    metavar="NAME=VALUE",
    help="A constant for an input not in the data; or sizes that the file leaves free: images=1x3x320x320. Repeatable.",
)

model_options = options(
    click.argument("model_file", metavar="[MODEL]", required=False, shell_complete=complete_file),
    click.option(
        "--model",
        "factory",
        metavar="MODULE:FACTORY",
        help="Code that makes the network, for a state dict.",
    ),
    click.option("--weights", type=click.Path(path_type=Path), help="The weights for --model."),
    harmless_option(
        "--backend",
        type=PluginName(BACKENDS),
        metavar="NAME",
        help="The backend, if the file's ending does not name it.",
        shell_complete=complete_names(BACKENDS),
    ),
    click.option("--device", help="Where to compute, in the framework's words (cpu, cuda:0)."),
    click.option("--output", metavar="NAME", help="Which of several outputs holds the scores; boxes,scores joins two."),
    click.option("--trust-code", is_flag=True, help="Allow code inside the model file to run."),
    feed_option,
)


def _data_options(*, required: bool) -> Callable[[Command], Command]:
    return options(
        click.option(
            "--data",
            required=required,
            help="Labelled inputs: npz with x and y, a folder of images, csv, 'lake/*.parquet'.",
            shell_complete=complete_file,
        ),
        click.option("--classes", help="Class names in order: a,b,c or a file with one per line."),
        click.option(
            "--preprocess",
            metavar="STEPS",
            help="Such as 'resize=48 scale=1/255 layout=nchw', or module:function.",
        ),
        harmless_option(
            "--memory",
            type=SIZE,
            default="2GiB",
            show_default=True,
            help="How much of the data and of what searches keep may be in memory; larger data is read in pieces.",
        ),
    )


data_options = _data_options(required=True)
optional_data_options = _data_options(required=False)

target_option = click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    help="The mistake: 6:0, cat:dog, cat:*, *:dog, false:dog, missed:dog, top:1, rows:FILE, group:VALUE, cause:1; =3 "
    "weighs it. Repeatable. Or a rule, for data without labels: 'rule:not 2,3', 'rule:any of cat,dog'.",
)

output_options = options(
    remembered_option(
        "--json",
        "as_json",
        cls=HarmlessOption,
        is_flag=True,
        help="One JSON object on standard output, the rest on standard error.",
    ),
    remembered_option("-q", "--quiet", cls=HarmlessOption, is_flag=True, help="Show only the result."),
    remembered_option("-v", "--verbose", cls=HarmlessOption, is_flag=True, help="Show every step."),
    remembered_option("--log-file", type=LOG_FILE, help="Write all messages to this file too."),
    remembered_option("--debug", is_flag=True, help="Show a traceback when something goes wrong."),
)
"""The options of every command, which `Output` reads."""


def read_feed(text: str) -> tuple[str, Any]:
    """An input's name and its value from `keep_prob=1` or `mask=1,0,1`, or its shape as text from `images=1x3x320x320`.

    Raises:
        UsageError: It is of another form.
    """
    name, _, value = text.rpartition("=")
    words = {"true": True, "false": False}
    wanted = f"expected an input's name and numbers, as in keep_prob=1, or a shape, as in x=1x3x32x32, got '{text}'"
    if not name:
        raise UsageError(wanted)
    if SHAPE.fullmatch(value):
        return name, value
    try:
        numbers = [words[part.lower()] if part.lower() in words else float(part) for part in value.split(",")]
    except ValueError as error:
        raise UsageError(wanted) from error
    return name, numbers[0] if len(numbers) == 1 else numbers


@dataclass(frozen=True)
class ModelChoice:
    """The options of the command line about the model."""

    model_file: str | None
    factory: str | None
    weights: Path | None
    backend: str | None
    device: str | None
    output: str | None
    trust_code: bool
    feeds: tuple[str, ...] = ()

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> ModelChoice:
        """Take the model's options out of a command's arguments."""
        choice = cls(**{name: arguments.pop(name) for name in cls.__dataclass_fields__})
        if choice.model_file is not None and choice.factory is not None and choice.weights is None:
            raise UsageError(
                f"--model {choice.factory} makes the network, so '{choice.model_file}' holds its weights: write "
                f"--weights {choice.model_file}"
            )
        if choice.factory is not None and ":" not in choice.factory:
            name = Path(choice.factory)
            wanted = f"write {name.stem}:NAME, with the function in it that makes the network"
            raise UsageError(
                f"--model names code as MODULE:FACTORY, got '{choice.factory}'; "
                + (wanted if name.suffix in ("", ".py") else "a model file is given without --model")
            )
        if (choice.model_file is None) == (choice.factory is None):
            raise UsageError("give a model: a file, or --model MODULE:FACTORY with --weights FILE")
        if choice.factory is None and choice.weights is not None:
            raise UsageError("--weights goes with --model MODULE:FACTORY; a model file has its own weights")
        return choice

    @property
    def file(self) -> Path | None:
        """The file the weights are in."""
        return self.weights if self.factory else Path(str(self.model_file))

    def load(self, file: Path | None = None, *, scores_suffice: bool = False) -> ModelBackend:
        """Open the model, or another file of the same kind in its place; one without layers if scores suffice."""
        from arachne.model.registry import load

        common: dict[str, Any] = {
            "backend": self.backend,
            "device": self.device,
            "output": self.output,
            "trust_code": self.trust_code,
            "feeds": dict(map(read_feed, self.feeds)),
            "scores_suffice": scores_suffice,
        }
        if self.factory:
            return load(self.factory, weights=file or self.weights, **common)
        return load(file or self.model_file, **common)


@dataclass(frozen=True)
class DataChoice:
    """The options of the command line about the data."""

    data: str | None
    classes: str | None
    preprocess: str | None
    memory: int = MEMORY

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> DataChoice:
        """Take the data's options out of a command's arguments."""
        return cls(**{name: arguments.pop(name) for name in cls.__dataclass_fields__})

    def raw(self, backend: ModelBackend, task: Task | None = None) -> tuple[Inputs, Array]:
        """The inputs and labels without what `--preprocess` does to them, apart from bringing images to one size."""
        from arachne.data.preprocess import Preprocess
        from arachne.data.read import read_data

        sizes, _ = Preprocess.parse(self.preprocess).split_images()
        names = self.classes or backend.class_names
        data = read_data(self.data, classes=names, preprocess=sizes, memory=self.memory, task=task)
        return data.inputs, data.labels

    def read_kept(self, source: str | None) -> LabelledData | None:
        """Read inputs without labels as the data is read; None where there are none."""
        from arachne.data.unlabelled import read_unlabelled

        return None if source is None else read_unlabelled(source, preprocess=self.preprocess, memory=self.memory)

    def read(
        self,
        backend: ModelBackend,
        source: str | None = None,
        *,
        task: Task | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> LabelledData:
        """Read the data, or other data in the same way; say so if the order of class names is only assumed."""
        from arachne.causes.features import holds_tokens
        from arachne.data.read import read_data
        from arachne.model.values import by_name

        names = self.classes or backend.class_names
        data = read_data(source or self.data, classes=names, preprocess=self.preprocess, memory=self.memory, task=task)
        if tell is not None and is_lazy(data.inputs):
            size, most = size_text(data.nbytes), size_text(self.memory)
            tell(f"data: {len(data):,} inputs take {size}, more than --memory {most}, and are read by piece")
        numbered = [f"{number} {name}" for number, name in enumerate(data.class_names or ()) if name != str(number)]
        if data.names_assumed and numbered and tell is not None:
            shown = ", ".join(numbered[:MOST_CLASSES]) + (", …" if len(numbered) > MOST_CLASSES else "")
            tell(f"classes are numbered as in the data: {shown}; --classes gives another order")
        if tell is not None and data.texts is None and any(map(holds_tokens, by_name(data.inputs).values())):
            tell("inputs are token numbers and shown as such; their texts beside them, as meta_text, give words")
        return data
