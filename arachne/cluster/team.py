"""The client's side: questions about pieces go to workers, answers come back in the order of the pieces.

A shard has its worker, which caches what it built from it; where that worker is lost or late, another one gets the
shard. No answer depends on which worker gives it, so neither does a result.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from arachne.cluster.models import Model
from arachne.cluster.questions import Ask, Traffic
from arachne.cluster.roster import LATE_AND_SILENT_SECONDS, POLL_SECONDS, SILENT_SECONDS, Roster
from arachne.cluster.worker import ModelNotSeenError, Opening, Piece, answers, deliver
from arachne.errors import ClusterError
from arachne.model.remote import Answer
from arachne.model.values import Inputs, take

if TYPE_CHECKING:
    from distributed import Client, Future

STRAGGLER_CHECK_SECONDS = 2.0
"""Seconds between straggler checks, which query the scheduler."""

LATE_FACTOR, MIN_LATE_SECONDS = 4.0, 5.0
"""A worker is late after this many times what the slowest other answer took, and at least so many seconds."""

BUSY_FACTOR = 5.0
"""A late worker that still sends heartbeats gets this many times as long: others may use its machine too."""

MAX_QUESTIONS_PER_TASK = 16
"""Maximum number of questions that go to a worker in one dask task."""

MAX_TRIES = 5
"""How many workers may be lost over a shard before the run ends."""

N_LOOK_INPUTS = 8
"""Number of inputs that a worker looks at when it opens the model."""

MAX_SENT_VALUES = 8192
"""Number of sent values (inputs of shards, arguments of builds) that are kept on the cluster."""

log = logging.getLogger("arachne")


@dataclass(eq=False)
class _Task:
    """One question on its way, with others to the same worker: `position` is its own among their answers."""

    number: int
    ask: Ask
    future: Future[bytes]
    position: int
    worker: str
    asked: float
    tries: int = 1


class Team:
    """The workers of one cluster, and the model they run.

    Args:
        client: A dask client.
        model: The model.
    """

    def __init__(self, client: Client, model: Model) -> None:
        self.client = client
        self.model = model
        self.traffic = Traffic()
        self._home: dict[str, str] = {}
        self._roster = Roster(client)
        self._on_cluster: dict[str, Future[Any]] = {}
        self._look: Inputs | None = None
        self._opening = Opening()

    def look(self, inputs: Inputs) -> None:
        """Take the first of these inputs for all workers to look at, unless there are some already."""
        if self._look is None:
            self._look = take(inputs, slice(0, N_LOOK_INPUTS))
            self._opening = Opening(self._look)

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """Ask questions and return the answers in their order.

        Raises:
            ClusterError: The scheduler is gone, or there is no worker left.
        """
        began = time.monotonic()
        self.traffic.rounds += 1
        self.traffic.questions += len(asks)
        self._assign_workers([ask.piece for ask in asks], self._roster.alive(known=True))
        found: dict[int, Answer] = {}
        tasks = self._submit_all(asks)
        looked = time.monotonic()
        while tasks:
            self._wait(list({task.future.key: task.future for task in tasks}.values()))
            found |= self._gather(tasks)
            tasks = [self._retry(task) or task for task in tasks if task.number not in found]
            if tasks and time.monotonic() - looked > STRAGGLER_CHECK_SECONDS:
                tasks += self._replace_lost_or_late(tasks, found)
                looked = time.monotonic()
        self.traffic.waited += time.monotonic() - began
        self.traffic.seconds += sum(answer.seconds for answer in found.values())
        self.traffic.processor += sum(answer.processor for answer in found.values())
        return [found[number] for number in range(len(asks))]

    def _gather(self, tasks: Sequence[_Task]) -> dict[int, Answer]:
        """Fetch the answers that are ready; one that is lost on the way is asked for again later."""
        from distributed.protocol.pickle import loads

        done = {task.future.key: task.future for task in tasks if task.future.status == "finished"}
        try:
            values = self.client.gather(list(done.values()), errors="raise") if done else []
        except Exception as error:  # the worker died between its answer and our asking for it
            log.debug("fetching answers: %s", error)
            self._roster.check_scheduler()
            return {}
        self.traffic.received += sum(map(len, values))
        found = {key: loads(value) for key, value in zip(done, values, strict=True)}
        return {task.number: found[task.future.key][task.position] for task in tasks if task.future.key in found}

    def _submit_all(self, asks: Sequence[Ask]) -> list[_Task]:
        """Submit all questions, those to one worker together, because the scheduler's work is per task."""
        by_worker: dict[str, list[int]] = {}
        for number, ask in enumerate(asks):
            by_worker.setdefault(self._home[ask.piece.key], []).append(number)
        return [
            task
            for worker, numbers in by_worker.items()
            for first in range(0, len(numbers), MAX_QUESTIONS_PER_TASK)
            for task in self._submit(
                {number: asks[number] for number in numbers[first : first + MAX_QUESTIONS_PER_TASK]}, worker
            )
        ]

    def _submit(self, asks: Mapping[int, Ask], worker: str, tries: int = 1) -> list[_Task]:
        """Submit some questions, by their numbers, to one worker."""
        from distributed.protocol.pickle import dumps

        contents, build_arguments = [], []
        for ask in asks.values():
            piece, made = ask.piece, ask.build_arguments
            contents.append(None if piece.described is not None else self._send(piece.key, ask.inputs, worker))
            build_arguments.append(
                () if made is None else self._send(f"{piece.key}-{ask.question.build_key}", made, worker)
            )
        opening = self._send(f"model-{self._opening.files is None}", lambda: self._opening, worker)
        pickled = dumps([(ask.question, ask.piece) for ask in asks.values()])
        self.traffic.sent += len(pickled)
        future = self.client.submit(answers, pickled, contents, opening, build_arguments, workers=[worker], pure=False)
        now = time.monotonic()
        return [
            _Task(number, asks[number], future, position, worker, now, tries) for position, number in enumerate(asks)
        ]

    def _send(self, key: str, content: Callable[[], Any], worker: str) -> Future[Any]:
        """Send a large value to one worker, once, without replication."""
        from dask.sizeof import sizeof

        key = f"arachne-{key}@{worker}"
        future = self._on_cluster.pop(key, None)
        if future is None or future.status in ("cancelled", "lost", "error"):
            value = content()
            self.traffic.placed += sizeof(value)
            future = self.client.submit(deliver, value, key=f"{key}-{time.monotonic_ns()}", workers=[worker])
        self._on_cluster[key] = future
        while len(self._on_cluster) > MAX_SENT_VALUES:
            del self._on_cluster[next(iter(self._on_cluster))]
        return future

    def _wait(self, futures: Sequence[Future[bytes]]) -> None:
        """Wait until all are done, or for `POLL_SECONDS`."""
        from distributed import wait

        try:
            with self.client.as_current():
                wait(futures, timeout=POLL_SECONDS)
        except TimeoutError:
            return
        except Exception as error:  # cancelled futures, closed connections: what became of them is looked at next
            log.debug("waiting for workers: %s", error)
            time.sleep(POLL_SECONDS / 10)

    def _retry(self, task: _Task) -> _Task | None:
        """Ask a failed question again, where another try can help; None while the answer is pending."""
        from distributed import KilledWorker

        if task.future.status in ("cancelled", "lost"):
            self._roster.check_scheduler()
            return self._move(task)
        if task.future.status != "error":
            return None
        error = task.future.exception()
        if isinstance(error, ModelNotSeenError):
            if self._opening.files is None:
                self._opening = replace(self._opening, files=self.model.bytes())
            return self._submit({task.number: task.ask}, task.worker, task.tries)[0]
        if isinstance(error, KilledWorker) or type(error).__name__ in ("CommClosedError", "FutureCancelledError"):
            return self._move(task)
        raise error if error is not None else ClusterError("a worker failed and did not say why")

    def _move(self, task: _Task) -> _Task:
        """Ask another worker instead."""
        if task.tries >= MAX_TRIES:
            raise ClusterError(
                f"{MAX_TRIES} workers were lost over the same inputs; they may lack memory, see their logs"
            )
        alive = self._roster.alive()
        counts = dict.fromkeys([worker for worker in alive if worker != task.worker] or alive, 0)
        for own in self._home.values():
            if own in counts:
                counts[own] += 1
        other = min(counts, key=lambda worker: counts[worker])
        self._home[task.ask.piece.key] = other
        self.traffic.resubmitted += 1
        return self._submit({task.number: task.ask}, other, task.tries + 1)[0]

    def _replace_lost_or_late(self, tasks: Sequence[_Task], found: Mapping[int, Answer]) -> list[_Task]:
        """Submit new tasks beside those whose worker is lost or late; the old ones may still answer first."""
        self._roster.check_scheduler()
        alive, now, unheard = self._roster.alive(), time.monotonic(), self._roster.seconds_unheard()
        slowest = max((one.seconds for one in found.values()), default=inf)
        queued = Counter(task.worker for task in tasks)
        latest = {task.number: task for task in sorted(tasks, key=lambda task: task.asked)}
        moved = []
        for task in latest.values():
            limit = max(MIN_LATE_SECONDS, LATE_FACTOR * slowest * (1 + queued[task.worker]))
            silent, waited = unheard.get(task.worker, 0.0), now - task.asked
            hangs = silent > SILENT_SECONDS or (silent > LATE_AND_SILENT_SECONDS and waited > limit)
            if task.worker in alive and not hangs and waited <= BUSY_FACTOR * limit:
                continue
            if task.worker in alive and len(alive) < 2:
                continue
            if task.worker in alive and hangs and task.worker not in self._roster.hanging:
                self._roster.hanging.add(task.worker)
                log.warning("the worker at %s does not answer; its inputs go to others", task.worker)
            moved.append(self._move(task))
        return moved

    def _assign_workers(self, pieces: Sequence[Piece], alive: Sequence[str]) -> None:
        """Assign workers to shards: neighbours to the same worker, as many to each; assigned shards keep theirs."""
        counts = dict.fromkeys(alive, 0)
        free = []
        for piece in pieces:
            if self._home.get(piece.key) in counts:
                counts[self._home[piece.key]] += 1
            else:
                free.append(piece)
        share = -(-len(pieces) // len(alive))
        for piece in free:
            worker = next((one for one in alive if counts[one] < share), alive[0])
            self._home[piece.key] = worker
            counts[worker] += 1

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self._roster.alive(known=True))
