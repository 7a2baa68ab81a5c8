"""Words: how sentences about a repair call its decisions, which a task may call otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from arachne.text import Brief


@dataclass(frozen=True)
class Words(Brief):
    """The words of a task in sentences and tables; where there are two, one input does the first, several the other.

    Attributes:
        showed: Inputs to repair are inputs that did this.
        shows: They still do this.
        shows_it: The same, where the fault has been named.
        repaired: Inputs that are repaired do this.
        unrepaired: An input that is not does this.
        gone: A share of the fault that is no longer there: `90 % of it is gone`.
        was_right: Inputs that must not break are inputs that did this.
        broke: Those that broke did this.
        share: The name of the share of inputs that are right.
        classes: Whether that share means something class by class.
        never_true: How the names of classes end that no label ever has.
    """

    showed: str = "showed the fault"
    shows: tuple[str, str] = ("shows the fault", "show the fault")
    shows_it: tuple[str, str] = ("shows it", "show it")
    repaired: tuple[str, str] = ("is right now", "are right now")
    unrepaired: str = "is not right now"
    gone: str = "of it is gone"
    was_right: str = "were right"
    broke: str = "broke"
    share: str = "accuracy"
    classes: bool = True
    never_true: tuple[str, ...] = ()


WORDS = Words()
"""The words of decisions that are right or wrong."""
