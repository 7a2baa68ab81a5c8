"""The command `arachne`. Each subcommand is a file of its own, read only when it is used."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from arachne import __version__
from arachne.cli.exit import check_address_space, leave, prepare, report_closed_pipe
from arachne.errors import ArachneError, Interrupted, did_you_mean, is_out_of_memory
from arachne.io.imports import import_from_elsewhere
from arachne.text import printable

COMMANDS = {
    "demo": "Scan and repair a small model that comes with Arachne.",
    "scan": "List the mistakes that a model makes, and what they share.",
    "localise": "Find the weights behind a mistake.",
    "repair": "Repair a mistake and show what that did.",
    "compare": "Compare searchers on one mistake.",
    "evaluate": "Measure a model, or what a patch does to it.",
    "choose": "Take another point of a repair's front, without a new search.",
    "report": "Make the page of a repair again.",
    "apply": "Put a patch into a copy of a model file.",
    "revert": "Take a patch out of a model file again, bit for bit.",
    "delta": "Write the bytes that a repair changed, for devices that apply them.",
    "show": "Show what a patch changes, with its evidence.",
    "diff": "Make a patch from the difference of two models.",
    "stack": "Put patches together, or take one out again.",
    "log": "List which patches a model file carries.",
    "convert": "Write a model as ONNX, and show that it gives the same scores.",
    "cache": "Show or remove the outputs of models that are kept for the next command.",
    "settings": "Show every option of a command, and what has set it.",
    "backends": "List the frameworks whose models can be repaired.",
    "plugins": "List searchers, localisers and other plug-ins, or the options of one.",
}
"""Every subcommand and the sentence `arachne --help` shows, so that listing them imports none."""

LIGHT = {"apply", "revert", "show", "log", "delta", "stack", "cache", "settings", "backends", "plugins"}
"""Commands that need NumPy and no framework."""

OUT_OF_MEMORY = "out of memory; use fewer inputs or a machine with more"

OPTIONS = {
    "classes": "--classes NAMES",
    "data": "--data DATA",
    "factory": "--model MODULE:FACTORY --weights FILE",
    "feeds": "--feed NAME=VALUE",
    "mapping": "--map LAYER=OTHER",
    "output": "--output chooses one of the model's; a place to write to is given with -o",
    "preprocess": "--preprocess STEPS",
    "replace": "--force",
    "task": "--task NAME",
    "threshold": "--threshold VALUE",
    "tolerance": "--tolerance NUMBER",
    "resume": "--resume goes on, --force begins anew",
    "training": "--training DATA",
    "trust_code": "--trust-code",
    "weights": "--weights FILE or --backend NAME",
}
"""The option for each argument that an error may ask for."""


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are called."""

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        with report_closed_pipe():
            return super().make_context(*arguments, **keywords)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        check_address_space(light=cmd_name in LIGHT)
        command: click.Command = importlib.import_module(f"arachne.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            ctx.fail(f"no command named '{args[0]}'{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="arachne")
def cli() -> None:
    """Repair trained neural networks.

    Arachne finds the few weights behind a mistake, looks for new values for them, and shows what that fixed and what it
    broke on inputs it never saw.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code: one sentence on standard error, no traceback."""
    prepare()
    os.environ["PYTHONSAFEPATH"] = "1"  # nor do processes that are started from here import from the working folder
    if "_ARACHNE_COMPLETE" in os.environ:
        importlib.import_module("arachne.cli.completion")
    try:
        code = run(list(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as end:  # click, when a shell asks for completions
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    leave(code)


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code.

    0 done, 1 a gate failed, 2 usage, 3 bad or unsafe input, 4 environment, 5 nothing to repair, 6 nothing within the
    budget, 70 a bug of ours, 130 interrupted, 143 terminated.
    """
    import_from_elsewhere()
    try:
        result = cli.main(args=arguments or ["--help"], prog_name="arachne", standalone_mode=False)
    except Exception as error:
        return _fail_for(error, arguments)
    except Interrupted as interrupted:
        sentence, *command = str(interrupted).splitlines()  # a line of its own is easily copied
        return _fail(sentence, interrupted.exit_code, arguments, below=command)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, arguments)
    return result if isinstance(result, int) else 0


def _fail_for(error: Exception, arguments: list[str]) -> int:
    """Tell an error in a sentence, and return its exit code."""
    if isinstance(error, ArachneError):  # also one about what an interrupted run could not keep
        return _fail(_with_option(error), error.exit_code, arguments, below=error.below)
    if _was_interrupted(error):
        return _fail("interrupted", 130, arguments)
    if isinstance(error, click.ClickException):
        usage = getattr(error, "ctx", None)
        if usage is not None:
            with contextlib.suppress(OSError):
                click.echo(f"{usage.get_usage()}\ntry '{usage.command_path} --help'", err=True)
        return _fail(_sentence(error), 2, arguments)
    if isinstance(error, MemoryError):
        return _fail(OUT_OF_MEMORY, 4, arguments)
    if isinstance(error, OSError):
        return _fail(f"{error.strerror or error}" + (f": '{error.filename}'" if error.filename else ""), 4, arguments)
    if is_out_of_memory(error):
        return _fail(f"{OUT_OF_MEMORY} ({error})", 4, arguments)
    message = f"this is a bug in Arachne ({type(error).__name__}: {error}); --debug shows where"
    return _fail(message, 70, arguments)


def _was_interrupted(error: BaseException | None) -> bool:
    """Tell whether an error began as Ctrl-C: a compiled module turns it into an ImportError while it is imported."""
    while error is not None:
        if isinstance(error, (click.Abort, KeyboardInterrupt, Interrupted)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _with_option(error: ArachneError) -> str:
    """The error's sentence, with the option that helps where it or its cause names an argument."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ArachneError) and cause.argument in OPTIONS:
            return f"{error.sentence} ({OPTIONS[cause.argument]})"
        cause = cause.__cause__
    return error.sentence


OTHER_WORDS = {"--budget": "--max-break"}
"""Words that people try for an option, whose letters are nearer to those of others."""

CLICKS_WORDS = {
    r"a valid integer( range)?": "a whole number",
    r"a valid float( range)?": "a number",
    r" is not in the range x>=(\S+?)\.?$": r" is less than \1",
}
"""Patterns of phrases of click, and the plain words in their place."""


def _sentence(error: click.ClickException) -> str:
    """Word click's error as our own errors are; an option that is missing is explained."""
    if isinstance(error, click.NoSuchOption):
        return _plugin_spelling(error) or f"no option named '{error.option_name}'{_like(error)}"
    message = error.format_message()
    for clicks, plain in CLICKS_WORDS.items():
        message = re.sub(clicks, plain, message)
    sentences = [message]
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        sentences.append(re.split(r"[;.]( |$)", error.param.help or "")[0])
    first, *more = [f"{text[:1].lower()}{text[1:].rstrip('.')}" for text in sentences]
    return first + "".join(f" ({text})" for text in more if text)


def _like(error: click.NoSuchOption) -> str:
    """The end of a sentence about an option that does not exist: the one that was meant, where the command has it."""
    meant = OTHER_WORDS.get(error.option_name)
    if meant is None or error.ctx is None:
        return did_you_mean(error.option_name, error.possibilities or ())
    return did_you_mean(meant, [one for param in error.ctx.command.params for one in param.opts if one == meant])


def _plugin_spelling(error: click.NoSuchOption) -> str | None:
    """How a plug-in's option is given that was typed as a flag; None for any other word, or another command."""
    from arachne.cli.plugin_options import NameValues

    if error.ctx is None or not any(isinstance(one, NameValues) for one in error.ctx.command.params):
        return None
    from arachne.cli.plugin_options import spelling_of

    return spelling_of(error.option_name, error.ctx.command)


def _fail(message: str, code: int, arguments: list[str], *, below: Sequence[str] = ()) -> int:
    with contextlib.suppress(OSError):  # where standard error takes nothing, the code is all there is to tell
        if "--debug" in arguments and sys.exc_info()[0] is not None:
            click.echo(printable(traceback.format_exc(), keep="\n"), err=True, nl=False)
        click.echo(f"error: {printable(message.strip())}", err=True)
        for line in below:
            click.echo(printable(line), err=True)
    return code
