"""Completion in bash, which takes `-O start=ne` for three words: `start`, `=` and `ne`."""

from __future__ import annotations

from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

REPLY = "COMPREPLY+=($value)"
REPLY_WITHOUT_SPACE = f"{REPLY}\n            [[ $value == *= ]] && compopt -o nospace"


class Bash(BashComplete):
    """Puts the words of `-O NAME=VALUE` together again, and adds no space behind `NAME=`."""

    source_template = BashComplete.source_template.replace(REPLY, REPLY_WITHOUT_SPACE)
    already_typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if incomplete == "=" and args[-2:-1] in (["-O"], ["--option"]):
            self.already_typed = f"{args.pop()}="
            return args, self.already_typed
        if args[-1:] == ["="] and args[-3:-2] in (["-O"], ["--option"]):
            self.already_typed = f"{args[-2]}="
            return args[:-2], self.already_typed + incomplete
        return args, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        item.value = str(item.value).removeprefix(self.already_typed)
        return super().format_completion(item)


add_completion_class(Bash)
