"""The sentences of the page; numbers are put beside them by `report.py`."""

HEAD = """# Repairs at equal damage

How much does a repair fix, when it may break so much and no more? Each fault is repaired from one half of the test
inputs. What a searcher found is chosen for each budget by what was seen there, and counted on the other half, which
neither search nor choice has looked at. Repaired is the share of held-out inputs with the fault that are right now,
broken the share of held-out inputs that were right and are wrong now. Broken can therefore exceed the budget: how often
it does is part of the result.

`auto` is the default search as it was before `erase` and `low-rank` joined it and `margin@wide` left. Today's has not
been measured on all faults yet; its first runs are in `examples/study/results/directions`. The pool measured here has
`bias` (a shift of the class biases), `last-layer` (the
last layer, fine-tuned so that it holds on to what it says of inputs that are right), `margin` (gradient steps on
suspects of all dense layers that guard the margins of inputs that are right), `margin@hidden` (the same on suspects
of hidden dense layers alone), `margin@fisher` (on the weights that do least to inputs that are right), `margin@wide`
(on 3,000 weights of wide hidden layers) and, where there is no hidden dense layer and the others repair less than a
quarter, `margin@conv` (on the last convolutions). Its members' rows are read from the same run: their own candidates,
chosen by the same rule. A repair is asked to keep the default budget; for the others a point is chosen from the same
front, as `arachne choose` does."""

CAPTION = """Means over the faults that judge, a point for each budget; bars are 95 % intervals of the mean of `auto`,
from resampling faults."""

CAME_OUT = """What is wanted was written down before anything here was measured. All are means over the faults that
judge, with 95 % intervals from resampling faults; a fault counts once however many seeds it was run with."""

GROUP = """Repaired (95 % interval of the mean over faults) @ broken, by budget. *Within reach* is the most that any one
candidate of `auto` repairs while it keeps the budget on held-out inputs. Only who looked at them could choose it, so it
flatters; it tells what the choice loses and what the search did not find."""

KEPT = """Share of runs that keep the budget on held-out inputs; weights changed at the default budget (median;
minimised where the patch is the one `auto` chose); processor seconds of a whole repair (mean; on two cores with some
thirty other processes, which adds to them):"""

BY_KIND = "Repaired (95 % interval of the mean over faults) @ broken, `auto`:"

AGAINST_DE = """`de` is the paper's: bidirectional localisation and differential evolution, here over dense layers. It
knows no budget and hands back one patch, so that copies of it with three quarters, half and a quarter of the change can
be chosen too, on 30 % of the seen half that the search does not get. All rows here are over the faults and seeds it
finished."""

EVERY_FAULT = """The default repair. Means over seeds; intervals are Wilson's 95 % for as many inputs as one half has.
Weights: changed by the patch, of those changed before the ones it can do without were dropped (medians over seeds)."""

SETS = """Recipes were decided on one set of faults and are judged by another: other classes, places, colours and seeds
for planted faults, other ranks for confusions. The tables above are over those that judge. The last table has the
default repair on both sets.

One number was not decided so: that `deep` is left out where the others repair a quarter was picked after the judging
faults of c10-resnet had been seen. It concerns that network alone."""

AGAIN = """## To make it again

Result files are in `examples/study/results/budgets`, one for each repair; a run that has its file is skipped unless it
was made by another recipe or from other weights. [Subjects and planted
faults](reproducing-the-paper.md#subjects-and-planted-faults) says how the networks are trained.

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study budgets --part judge --minutes 20    # resumable
python -m examples.study report                               # this page and its figure
```"""
