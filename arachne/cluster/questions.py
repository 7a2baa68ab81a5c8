"""Questions about shards, and the count of what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arachne.cluster.worker import Piece, Question
from arachne.model.values import Inputs
from arachne.text import pluralise, size_text


@dataclass(frozen=True, eq=False)
class Ask:
    """A question about a shard.

    Attributes:
        question: The question.
        piece: The shard.
        inputs: Returns the shard's inputs, where a worker cannot read them.
        build_arguments: Returns the arguments of what is built from the shard, if something is.
    """

    question: Question
    piece: Piece
    inputs: Callable[[], Inputs]
    build_arguments: Callable[[], tuple[Any, ...]] | None = None


@dataclass
class Traffic:
    """Counts of the questions asked so far.

    Attributes:
        questions: How many questions.
        seconds: What workers took for them, added up.
        processor: Processor time of the workers, added up.
        rounds: How often some questions were asked together.
        resubmitted: How many were asked again of another worker.
        sent: Bytes of the questions.
        received: Bytes of the answers.
        placed: Bytes of what was sent to a worker once, and kept there: inputs and models.
        waited: Seconds from asking to having all answers, added up.
    """

    questions: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    rounds: int = 0
    resubmitted: int = 0
    sent: int = 0
    received: int = 0
    placed: int = 0
    waited: float = 0.0

    def summary(self) -> str:
        """Summarise the traffic in one sentence."""
        each = size_text((self.sent + self.received) / max(1, self.rounds))
        summary = f"{pluralise(self.questions, 'question')} in {pluralise(self.rounds, 'round')}, "
        summary += f"{each} a round there and back; {size_text(self.placed)} sent once; "
        summary += f"workers computed for {self.processor:.1f} s"
        return f"{summary}, waited for {self.waited:.1f} s" + ("; one process alone is quicker" if self.idle else "")

    @property
    def idle(self) -> bool:
        """Whether all that workers computed took less time than waiting for it did."""
        return self.seconds < self.waited
