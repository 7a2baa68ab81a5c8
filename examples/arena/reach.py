"""How far apart two groups must stay on new people: what is in reach on Adult, by rules that need no repair.

A rule moves each group's border by an amount of its own, as the best patch could that keeps the order of scores within
a group. A second one also accepts some of the women by lot, which gives up that order. Both choose on one half of the
people what makes the equalised-odds difference smallest there with F1 at most `MOST_F1` lower, and are judged on the
other half. Nothing else is known to them than to a repair; so what they leave is chance in who is in which half.

Two figures say how much chance alone leaves: people are drawn anew, as many of each group and label, with the same
rate of positives in both groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import arachne
from examples.arena import networks
from examples.arena.arenas import ADULT
from examples.arena.networks import Array

WOMEN, MEN, LOTS = np.arange(16) / 10, np.arange(-6, 2) / 10, np.arange(6) / 100
"""How far the borders of women and men are moved, in units of the logit, and the share of women accepted by lot."""

MOST_F1, HALVES, DRAWS = 0.015, 40, 20_000
"""How much lower F1 may be where a rule is chosen, how many random halves are drawn of each network's people, and how
often people are drawn for what chance leaves."""


def measure_reach() -> dict[str, Any]:
    """Return by how much each rule lowers the equalised-odds difference of each network, as shares."""
    found: dict[str, Any] = {}
    for number, seed in enumerate(ADULT):
        stored = networks.arrays(f"neufair_adult_{seed}")
        backend = arachne.load(networks.adult_mlp(stored))
        people = [
            np.stack([backend.forward(stored[f"data.x_{part}"]).ravel(), stored[f"data.y_{part}"], own])
            for part in ("val", "test")
            for own in [stored[f"data.group_{part}"] > 0]
        ]
        own = _less(*people) | {"borders, chosen with hindsight": _less(people[1], people[1])["borders"]}
        own |= _less_by_chance(*people)
        both, rng = np.concatenate(people, axis=1), np.random.default_rng(seed)
        orders = [np.array_split(rng.permutation(both.shape[1]), 2) for _ in range(HALVES)]
        halves = [_less(both[:, seen], both[:, held]) for seen, held in orders]
        drawn = {name: float(np.mean([one[name] for one in halves])) for name in halves[0]}
        found[str(number)] = {"published": own, "halves": drawn}
    return found


def _less_by_chance(seen: Array, held: Array) -> dict[str, float]:
    """Return by how much less the difference would be, in the mean, of networks that are even but for chance.

    One is even for all people there are, the other on those seen, where chance is in it as well.
    """
    rng = np.random.default_rng(0)
    gaps = []
    for people in (seen, held):
        found = []
        for label in (0, 1):
            rate = np.mean(held[0, held[1] == label] > 0)
            women, men = (int(((people[1] == label) & (people[2] == group)).sum()) for group in (0, 1))
            found.append(rng.binomial(women, rate, DRAWS) / women - rng.binomial(men, rate, DRAWS) / men)
        gaps.append(np.array(found))
    before = _odds(held)
    named = {"even for all people": gaps[1], "even on the validation set": gaps[1] - gaps[0]}
    return {name: float(1 - abs(one).max(axis=0).mean() / before) for name, one in named.items()}


def _odds(people: Array) -> float:
    """Return the equalised-odds difference of people as they are."""
    logits, labels, male = people
    gaps = [
        np.mean(logits[(labels == label) & (male == 1)] > 0) - np.mean(logits[(labels == label) & (male == 0)] > 0)
        for label in (0, 1)
    ]
    return float(np.abs(gaps).max())


def _less(seen: Array, held: Array) -> dict[str, float]:
    """Return by how much each rule, chosen on some people, lowers the difference of others; `(3, people)` each."""
    (odds, f1), (held_odds, _) = _tables(seen), _tables(held)
    nothing = 0, 0, int(np.argmin(np.abs(MEN)))
    found = {}
    for name, lots in (("borders", 1), ("borders and lots", len(LOTS))):
        allowed = np.where(f1 >= f1[nothing] - MOST_F1, odds, np.inf)[:, :lots]
        best = np.unravel_index(int(np.argmin(allowed)), allowed.shape)
        found[name] = float(1 - held_odds[best] / held_odds[nothing])
    return found


def _tables(people: Array) -> tuple[Array, Array]:
    """Return the equalised-odds difference and F1 of every rule, `(WOMEN, LOTS, MEN)` each."""
    logits, labels, male = people
    accepted: list[list[Array]] = []
    counts: list[list[int]] = []
    for group, moves in ((0, WOMEN), (1, MEN)):
        own = [logits[(male == group) & (labels == label)] for label in (0, 1)]
        accepted.append([_shares(one, moves) for one in own])
        counts.append([len(one) for one in own])
    women = [one[:, None, None] + LOTS[:, None] * (1 - one[:, None, None]) for one in accepted[0]]
    odds = np.maximum(*(abs(women[label] - accepted[1][label]) for label in (0, 1)))
    wrongly, rightly = (women[label] * counts[0][label] + accepted[1][label] * counts[1][label] for label in (0, 1))
    return odds, 2 * rightly / (rightly + wrongly + counts[0][1] + counts[1][1])


def _shares(logits: Array, moves: Sequence[float] | Array) -> Array:
    return np.array([np.mean(logits + move > 0) for move in moves])
