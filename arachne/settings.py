"""How to repair: every choice a user has, with our defaults and the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import arachne
from arachne.choose.budget import CHOOSE_SHARE, Budget
from arachne.data.labelled import LabelledData
from arachne.errors import InputError, UsageError, did_you_mean
from arachne.fairness import Objective
from arachne.io.reading import parse_errors_as
from arachne.localise import MIN_WEIGHTS, Bidirectional, Localiser, RandomChoice
from arachne.model.backend import ModelBackend
from arachne.patch.recorded import list_origins
from arachne.plugins.options import Configured, check_choice, options_of
from arachne.plugins.table import LOCALISERS, OBJECTIVES, SEARCHERS, TASKS, Table
from arachne.scoring.evaluators import EVALUATORS, MEMORY
from arachne.search import DifferentialEvolution, Pool, Searcher
from arachne.tasks import Task
from arachne.text import Brief

DEFAULT_ALPHA = 10.0
"""The paper's."""


@dataclass(frozen=True)
class Settings(Brief):
    """How to repair; the defaults are ours, `Settings.faithful()` is the paper to the letter.

    Attributes:
        alpha: How much a negative counts against a positive; refused with a searcher that does not use it.
        seed: What all randomness starts from.
        localiser: Finds the suspects; None takes the one that goes with the searcher.
        searcher: Finds their new values.
        evaluator: `fast`, or `plain` for the reference; both accept the same candidates, so only tests choose.
        memory: What the fast evaluator may keep between candidates, in bytes.
        choose: Share of the seen part kept for choosing between patches; 30 % when a budget needs it and this is 0.
        budget: What the repair may cost; None takes a search's one candidate as it is, and the default budget where a
            search hands back several.
        drop_overlap: Whether held-out inputs that are also in the data are dropped rather than refused.
        objective: What to make fairer between groups, instead of repairing as much as possible; None for the latter.
        group_by: A metadata column whose values stay on one side of the split.
        accept_near_chance: Whether to go on with a model that is hardly better than guessing, or reads classes as
            each other.
        time_limit: After how many seconds from the start of the repair the search ends with what it has found; None
            lets it finish. What it finds then depends on the machine.
        rounds: How often the search starts anew from the patch chosen so far, for what is still wrong, the first time
            included; what a round finds is taken only if it is better on inputs kept for choosing.
        task: How the model's outputs are read as decisions; None decides by the outputs: one label for each input, or
            two classes where the model gives one number.
    """

    alpha: float = DEFAULT_ALPHA
    seed: int = 0
    localiser: Localiser | None = None
    searcher: Searcher = field(default_factory=Pool)
    evaluator: str = "fast"
    memory: int = MEMORY
    choose: float = 0.0
    drop_overlap: bool = False
    group_by: str | None = None
    accept_near_chance: bool = False
    budget: Budget | None = None
    objective: Objective | None = None
    time_limit: float | None = None
    rounds: int = 1
    task: Task | None = None

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise UsageError(f"alpha must be above 0, got {self.alpha}")
        if self.seed < 0:
            raise UsageError(f"a seed is 0 or more, got {self.seed}")
        if self.time_limit is not None and not self.time_limit >= 0:
            raise UsageError(f"time_limit must be 0 seconds or more, got {self.time_limit}")
        if self.rounds < 1:
            raise UsageError(f"rounds must be 1 or more, got {self.rounds}")
        if self.rounds > 1 and self.budget is not None and self.budget.confidence is not None:
            raise UsageError(
                "a guarantee is tested once on inputs kept for choosing, and rounds look at them again and again; "
                "leave out the confidence or the rounds"
            )
        if self.rounds > 1 and isinstance(self.searcher, Pool) and self.searcher.max_weights is not None:
            raise UsageError(
                "every round changes other weights, so max_weights cannot hold for all of them; leave out one of both"
            )
        check_choice("evaluator", self.evaluator, EVALUATORS)
        for value, kind, such in (
            (self.localiser, Localiser | None, "a localiser such as arachne.Bidirectional()"),
            (self.objective, Objective | None, "an objective such as arachne.fairness.AccuracyGap()"),
            (self.searcher, Searcher, "a searcher such as arachne.DifferentialEvolution()"),
            (self.task, Task | None, "a task such as arachne.tasks.SingleLabel()"),
        ):
            if not isinstance(value, kind):
                raise UsageError(f"expected {such}, got {value!r}")
        if self.alpha != DEFAULT_ALPHA:
            check_uses_alpha(self.searcher)

    def resolve(
        self, backend: ModelBackend, *, training: LabelledData | None = None, never_break: LabelledData | None = None
    ) -> Settings:
        """Decide everything that depends on the model and the data, once: the localiser, and whether there is a budget.

        Raises:
            UsageError: The searcher or the localiser cannot run on this model, for this task, or without training data.
        """
        refusal = self.searcher.refusal(backend, training)
        if refusal is not None:
            missing = self.searcher.NEEDS_TRAINING and training is None
            raise UsageError(refusal, argument="training" if missing else None)
        localiser = self.resolve_localiser(backend)
        self.check_task(localiser)
        localiser.layer_filter.check([info.name for info in backend.layers])
        chosen = never_break is not None or self.objective is not None or self.rounds > 1
        budget = Budget() if chosen and self.budget is None else self.budget
        return replace(self, localiser=localiser, budget=budget)

    def resolve_localiser(self, backend: ModelBackend) -> Localiser:
        """Return the user's localiser, or the searcher's default; random localisation if a model has no gradients."""
        if self.localiser is not None:
            return self.localiser
        return make_localiser(self.searcher.LOCALISER) if backend.SUPPORTS_GRADIENTS else RandomChoice()

    @property
    def known_localiser(self) -> Localiser:
        """The localiser of settings that were resolved."""
        if self.localiser is None:
            raise ValueError("these settings were not resolved; call `resolve` first")
        return self.localiser

    def with_task(self, task: Task) -> Settings:
        """Return the settings with the task that reads the model's outputs.

        Raises:
            UsageError: The searcher or the localiser does not work for it.
        """
        found = replace(self, task=task)
        found.check_task(self.known_localiser)
        return found

    def check_task(self, localiser: Localiser) -> None:
        """Refuse a searcher or a localiser that works for a single label alone, if the task is another.

        Raises:
            UsageError: It does.
        """
        if self.task is None or self.task.SINGLE:
            return
        for kind, plugin in (("localiser", localiser), ("search", self.searcher)):
            if plugin.NEEDS_SINGLE_LABEL:
                raise UsageError(
                    f"the {kind} '{plugin.name}' works for one label for each input, and the task is "
                    f"'{self.task.name}'; take the default search and localiser, which work for every task"
                )

    @property
    def choose_share(self) -> float:
        """How much of the seen part the search never gets, so that its candidates are compared there."""
        chosen_within = self.budget is not None or isinstance(self.searcher, Pool)
        if chosen_within and self.rounds > 1:
            return self.choose or CHOOSE_SHARE
        if self.choose or not chosen_within:
            return self.choose
        guaranteed = self.budget is not None and self.budget.confidence is not None
        return CHOOSE_SHARE if guaranteed or not self.searcher.cross_fits else 0.0

    @classmethod
    def faithful(cls, **changes: Any) -> Settings:
        """BL's first front, its Gaussians, no clipping, no widening, no inner split."""
        paper = {"localiser": Bidirectional.faithful(), "searcher": DifferentialEvolution.faithful()}
        return cls(**{**paper, **changes})

    def to_json(self) -> dict[str, Any]:
        """The settings for provenance: names and plain values, enough to make the same settings again."""
        return {
            "alpha": self.alpha,
            "localiser": None if self.localiser is None else _plugin_json(LOCALISERS, self.localiser),
            "searcher": _plugin_json(SEARCHERS, self.searcher),
            "evaluator": self.evaluator,
            "choose": self.choose,
            "drop_overlap": self.drop_overlap,
            "group_by": self.group_by,
            "accept_near_chance": self.accept_near_chance,
            "budget": None if self.budget is None else self.budget.to_json(),
            "objective": None if self.objective is None else _plugin_json(OBJECTIVES, self.objective),
            "time_limit": self.time_limit,
            "rounds": self.rounds,
            **({} if self.task is None or self.task.SINGLE else {"task": _plugin_json(TASKS, self.task)}),
        }


def check_uses_alpha(searcher: Searcher) -> None:
    """Refuse an alpha that would change nothing.

    Raises:
        UsageError: The searcher does not use alpha; the sentence names those that do.
    """
    if not searcher.uses_alpha:
        *first, last = [name for name in SEARCHERS.ours if SEARCHERS.get(name).USES_ALPHA]
        raise UsageError(
            f"the search '{searcher.name}' finds the same patch with any alpha; leave it out, or search with "
            f"{', '.join(first)} or {last}"
        )


def localiser_for(task: Task, localiser: str | Localiser | None) -> Localiser:
    """The localiser of `arachne localise`: `bl` unless told otherwise, `contrast` for other tasks than a single label.

    Raises:
        UsageError: It works for a single label alone, and the task is another.
    """
    if localiser is None:
        localiser = Bidirectional.name if task.SINGLE else Pool.LOCALISER
    found: Localiser = LOCALISERS.get(localiser)() if isinstance(localiser, str) else localiser
    Settings(task=task).check_task(found)
    return found


def make_localiser(name: str, *, faithful: bool = False, **options: Any) -> Localiser:
    """A localiser by its name; one that can widen a small front does so unless told otherwise or faithful."""
    kind = LOCALISERS.get(name)
    if not faithful and any(one.name == "min_weights" for one in options_of(kind)):
        options = {"min_weights": MIN_WEIGHTS, **options}
    made: Localiser = _make_plugin(LOCALISERS, name, faithful, options)
    return made


def make_searcher(name: str, *, faithful: bool = False, **options: Any) -> Searcher:
    """A searcher by its name, as in the paper when faithful."""
    made: Searcher = _make_plugin(SEARCHERS, name, faithful, options)
    return made


def make_objective(text: str, **options: Any) -> Objective:
    """An objective from its name, or its name and the metadata column whose values are the groups: `gap:sex`."""
    name, colon, column = text.partition(":")
    if colon and not column.strip():
        raise UsageError(f"objective '{text}' names no column behind the colon, expected '{name}' or '{name}:COLUMN'")
    column_option = {"group_column": column.strip()} if colon else {}
    made: Objective = _make_plugin(OBJECTIVES, name.strip(), False, {**column_option, **options})
    return made


def make_task(name: str, **options: Any) -> Task:
    """A task by its name."""
    made: Task = _make_plugin(TASKS, name, False, options)
    return made


def as_task(task: str | Task | None) -> Task | None:
    """A task given by its name or as itself; None stays None."""
    return make_task(task) if isinstance(task, str) else task


def task_from(provenance: Mapping[str, Any]) -> Task | None:
    """The task in a patch's provenance; None if it is the default one, or patches of a stack have several.

    Raises:
        InputError: It is not installed here, or has other options than it had.
    """
    settings = [one.get("settings") for one in list_origins(provenance)]
    options, *others = [one.get("task") if isinstance(one, Mapping) else None for one in settings] or [None]
    if options is None or any(other != options for other in others):
        return None
    options = dict(options) if isinstance(options, Mapping) else {"name": options}
    name = str(options.pop("name", ""))
    package = options.pop("package", None)
    if "class" in options or name not in TASKS.names():
        where = f", which comes with {package}" if package else ""
        raise InputError(f"the repair reads outputs as the task '{name}'{where}, which is not installed here")
    try:
        with parse_errors_as("the task of a repair", InputError):
            return make_task(name, **options)
    except UsageError as error:  # nobody typed these options
        raise InputError(f"the task of the repair does not fit: {error}") from error


def objective_from(provenance: Mapping[str, Any]) -> Objective | None:
    """The objective in a patch's provenance; None if there is none, or one that is not installed here."""
    options = dict(provenance.get("settings", {}).get("objective") or {})
    name = str(options.pop("name", ""))
    options.pop("package", None)
    if name not in OBJECTIVES.names() or "class" in options:
        return None
    return make_objective(name, **options)


def make_settings(base: Settings | None = None, *, faithful: bool = False, **changes: Any) -> Settings:
    """Make settings from keywords; localiser and searcher may be given by name.

    Args:
        base: What the keywords change; our defaults, or the paper's when `faithful`, if None.
        faithful: Whether to start from the paper's settings.
        **changes: Attributes of `Settings`, or of its `Budget`.

    Raises:
        UsageError: No such setting; it says where one of the localiser or of the searcher goes.
    """
    if base is not None and faithful:
        raise UsageError("give settings or faithful, not both; arachne.Settings.faithful() makes faithful settings")
    changes = _with_budget(changes)
    if faithful and changes.get("budget") is not None:
        raise UsageError("the paper's repair knows no budget; leave out the budget or faithful")
    if faithful and changes.get("objective") is not None:
        raise UsageError("the paper's repair knows no objective; leave out the objective or faithful")
    for name in changes:
        if name not in Settings.__dataclass_fields__:
            raise UsageError(f"unknown setting '{name}'{_home(name, changes, base, faithful)}")
    if isinstance(changes.get("localiser"), str):
        changes["localiser"] = make_localiser(changes["localiser"], faithful=faithful)
    if isinstance(changes.get("searcher"), str):
        changes["searcher"] = make_searcher(changes["searcher"], faithful=faithful)
    if "task" in changes:
        changes["task"] = as_task(changes["task"])
    if isinstance(changes.get("objective"), str):
        changes["objective"] = make_objective(changes["objective"])
    if base is not None:
        made = replace(base, **changes)
    else:
        made = Settings.faithful(**changes) if faithful else Settings(**changes)
    if "alpha" in changes:
        check_uses_alpha(made.searcher)
    return made


def _with_budget(changes: dict[str, Any]) -> dict[str, Any]:
    """Replace the keywords of a budget by the budget they make."""
    limits = {
        name: value for name, value in changes.items() if name in Budget.__dataclass_fields__ and value is not None
    }
    rest = {name: value for name, value in changes.items() if name not in Budget.__dataclass_fields__}
    if not limits:
        return rest
    if rest.get("budget") is not None:
        raise UsageError(f"give a budget or '{next(iter(limits))}', not both")
    return {**rest, "budget": Budget(**limits)}


def _make_plugin(table: Table, name: str, faithful: bool, options: dict[str, Any]) -> Any:
    kind = table.get(name)
    known = [one.name for one in options_of(kind)]
    for option in options:
        if option not in known:
            raise UsageError(f"the {table.kind} '{name}' has no option '{option}'" + did_you_mean(option, known))
    return kind.faithful(**options) if faithful else kind(**options)


def _plugin_json(table: Table, plugin: Configured) -> dict[str, Any]:
    """A localiser or searcher with its options, and where it comes from when it is not ours."""
    kind = type(plugin)
    if table.is_ours(kind):
        return {"name": plugin.name, **plugin.to_json()}
    origin = table.origin(kind)
    source = {"package": origin} if origin else {"class": f"{kind.__module__}:{kind.__qualname__}"}
    return {"name": plugin.name, **source, **plugin.to_json()}


def _home(name: str, changes: Mapping[str, Any], base: Settings | None, faithful: bool) -> str:
    """Where a keyword goes that is no setting: to the localiser or the searcher, or to a setting of a like name."""
    base = base or (Settings.faithful() if faithful else Settings())
    searcher = _kind(SEARCHERS, changes.get("searcher") or base.searcher)
    localiser = _kind(LOCALISERS, changes.get("localiser") or base.localiser or searcher.LOCALISER)
    kinds: list[tuple[str, type[Any]]] = [("localiser", localiser), ("searcher", searcher)]
    kinds += [("searcher", DifferentialEvolution), ("localiser", Bidirectional)]
    for part, kind in kinds:
        if name in (one.name for one in options_of(kind)):
            package = "arachne." if kind.__name__ in arachne.__all__ else ""
            made = f"{package}{kind.__name__}" + (".faithful" if faithful else "")
            return f"; it is the {part}'s: {part}={made}({name}=…)"
    known = [*Settings.__dataclass_fields__, *Budget.__dataclass_fields__]
    near = did_you_mean(name, known)
    return near if near.endswith("?") else f"; available: {', '.join(known)}"


def _kind(table: Table, plugin: str | Configured) -> type[Any]:
    return table.get(plugin) if isinstance(plugin, str) else type(plugin)
