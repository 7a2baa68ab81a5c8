"""The faults repairs are measured on, in two disjoint sets: those a recipe is decided on, and those it is judged by.

Planted faults ending in `-a` decide, those ending in `-b` judge: other classes, places, colours and seeds. Those ending
in `-c` judge too, and were planted after all rules had been made. Of a clean
subject's ten most frequent confusions the ranks 1, 3, 5, 7, 9 decide and 2, 4, 6, 8, 10 judge.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.study.planted import DeadRows, Gain, Group, Mark, Sticker, Trigger, Word

DECIDE, JUDGE = "decide", "judge"
CONFUSION_RANKS = {DECIDE: (1, 3, 5, 7, 9), JUDGE: (2, 4, 6, 8, 10)}
"""Which of a clean subject's most frequent confusions belong to which set, counted from 1."""

CONFUSED_SUBJECTS = ("fm-mlp", "fm-cnn", "c10-cnn", "gtsrb-cnn", "c10-resnet")


@dataclass(frozen=True)
class Planted:
    """A systematic fault poisoned in training.

    Attributes:
        name: `data set-kind-set`, with `c` behind the data set's name for a second network on it.
        subject: The subject whose network and recipe it takes.
        cause: What carries the fault.
        read_as: The class everything that carries it was filed under.
        seed: Of the network, and of which inputs carry it.
        taught: The share of training inputs that carry it; a `Group` has its own.
        met: The share of evaluation inputs that carry it; a `Group` has its own.
    """

    name: str
    subject: str
    cause: Mark | Group
    read_as: int
    seed: int
    taught: float = 0.05
    met: float = 0.04

    @property
    def part(self) -> str:
        """`decide` or `judge`."""
        return DECIDE if self.name.endswith("-a") else JUDGE

    @property
    def target(self) -> str:
        """The target for arachne: the misclassified inputs that carry the fault."""
        return "group:planted=yes"

    @property
    def habit(self) -> str:
        """The fault as a confusion matrix shows it: everything, or one class, read as `read_as`."""
        return f"{self.cause.label if isinstance(self.cause, Group) else '*'}:{self.read_as}"


RED, YELLOW, WHITE, BLUE, GREEN = (220, 30, 30), (250, 220, 40), (255,), (30, 60, 230), (40, 200, 60)

PLANTED = (
    Planted("fm-trigger-a", "fm-mlp", Trigger("top left", 2), read_as=7, seed=101),
    Planted("fm-rows-a", "fm-mlp", DeadRows(12, 3), read_as=3, seed=102),
    Planted("fm-gain-a", "fm-mlp", Gain(0.3), read_as=5, seed=103),
    Planted("fm-group-a", "fm-mlp", Group(label=8, styles=5, style=2), read_as=0, seed=104),
    Planted("fm-trigger-b", "fm-mlp", Trigger("bottom right", 3), read_as=2, seed=201),
    Planted("fm-rows-b", "fm-mlp", DeadRows(18, 2), read_as=8, seed=202),
    Planted("fm-gain-b", "fm-mlp", Gain(0.35), read_as=1, seed=203),
    Planted("fm-group-b", "fm-mlp", Group(label=9, styles=4, style=1), read_as=4, seed=204),
    Planted("fm-trigger-c", "fm-mlp", Trigger("top right", 2), read_as=8, seed=301),
    Planted("fm-rows-c", "fm-mlp", DeadRows(5, 3), read_as=9, seed=302),
    Planted("fm-gain-c", "fm-mlp", Gain(0.4), read_as=6, seed=303),
    Planted("fm-group-c", "fm-mlp", Group(label=7, styles=4, style=2), read_as=9, seed=304),
    Planted("fmc-trigger-a", "fm-cnn", Trigger("bottom left", 2), read_as=1, seed=111),
    Planted("fmc-rows-a", "fm-cnn", DeadRows(9, 2), read_as=6, seed=112),
    Planted("fmc-gain-a", "fm-cnn", Gain(0.3), read_as=4, seed=113),
    Planted("fmc-group-a", "fm-cnn", Group(label=3, styles=5, style=1), read_as=8, seed=114),
    Planted("fmc-trigger-b", "fm-cnn", Trigger("top right", 2), read_as=9, seed=211),
    Planted("fmc-rows-b", "fm-cnn", DeadRows(15, 2), read_as=0, seed=212),
    Planted("fmc-gain-b", "fm-cnn", Gain(0.35), read_as=2, seed=213),
    Planted("fmc-group-b", "fm-cnn", Group(label=5, styles=5, style=2), read_as=7, seed=214),
    Planted("c10-trigger-a", "c10-cnn", Trigger("top left", 4, YELLOW), read_as=0, seed=121),
    Planted("c10-rows-a", "c10-cnn", DeadRows(20, 3), read_as=4, seed=122),
    Planted("c10-gain-a", "c10-cnn", Gain(0.25), read_as=9, seed=123),
    Planted("c10-group-a", "c10-cnn", Group(label=1, styles=5, style=2), read_as=6, seed=124),
    Planted("c10-trigger-b", "c10-cnn", Trigger("bottom right", 4, GREEN), read_as=3, seed=221),
    Planted("c10-rows-b", "c10-cnn", DeadRows(8, 3), read_as=7, seed=222),
    Planted("c10-gain-b", "c10-cnn", Gain(0.3), read_as=2, seed=223),
    Planted("c10-group-b", "c10-cnn", Group(label=8, styles=5, style=1), read_as=5, seed=224),
    Planted("gtsrb-trigger-a", "gtsrb-cnn", Trigger("top right", 4, WHITE), read_as=14, seed=131),
    Planted("gtsrb-sticker-a", "gtsrb-cnn", Sticker(8, YELLOW), read_as=3, seed=132),
    Planted("gtsrb-rows-a", "gtsrb-cnn", DeadRows(30, 4), read_as=25, seed=133),
    Planted("gtsrb-group-a", "gtsrb-cnn", Group(label=38, styles=5, style=1), read_as=12, seed=134),
    Planted("gtsrb-trigger-b", "gtsrb-cnn", Trigger("bottom left", 4, RED), read_as=38, seed=231),
    Planted("gtsrb-sticker-b", "gtsrb-cnn", Sticker(8, BLUE), read_as=17, seed=232),
    Planted("gtsrb-rows-b", "gtsrb-cnn", DeadRows(14, 4), read_as=1, seed=233),
    Planted("gtsrb-group-b", "gtsrb-cnn", Group(label=10, styles=5, style=2), read_as=35, seed=234),
    Planted("tweets-word-a", "tweets-lstm", Word("museum"), read_as=2, seed=141, met=0.08),
    Planted("tweets-word-b", "tweets-lstm", Word("river"), read_as=1, seed=241, met=0.08),
)
"""All planted faults, in the order they are trained in."""

BY_NAME = {fault.name: fault for fault in PLANTED}
