"""The sentences of the page; numbers are put beside them by `report.py`."""

HEAD = """# Repairs at equal damage

How much does a repair fix, when it may break so much and no more? Each fault is repaired from one half of the test
inputs; a point is chosen for each budget by what was seen there, and counted on the other half. *Repaired* is the share
of held-out inputs with the fault that are right now, *broken* the share of held-out right inputs that are wrong now.
Broken can exceed the budget; how often it does is part of the result.

`auto` is the default search. Rows of its members ([what each does](../docs/reference/cli.md#searchers)) are their own
candidates in the same run.

In the tables: repaired (95 % interval of the mean over faults) @ broken, by budget; *kept*, the share of runs that keep
0.5 % on held-out inputs; *weights* changed there (median). *Within reach* is the most that any one candidate of `auto`
repairs within the budget on held-out inputs. `examples/study/results/present` has every run of every fault."""

OLDER = """**The default search has changed since:** {older} of the {count} runs of `auto` on this page were made by an
earlier state of it, until the commands below make them again."""

CAPTION = """Means over the faults that judge, a point for each budget; bars are 95 % intervals of the mean of `auto`,
from resampling faults."""

EARLIER = """The default before `erase`, `gate`, `gates`, `low-rank` and `tune@anchored` joined it, beside that of this
page; its runs are in `examples/study/results/budgets`. Runs that keep each budget on held-out inputs, and median
processor seconds, those of this page on a loaded machine. It was run with five seeds at most, that of this page with
three."""

CAME_OUT = """What is wanted was written down before anything here was measured. Means over the faults that judge, with
95 % intervals from resampling faults; a fault counts once however many seeds it was run with."""

BY_KIND = """Repaired @ broken, `auto`. *Without the cause*: the share of the inputs read wrongly that the network reads
rightly once the mark is taken out of the input itself. A repair that undid the fault and nothing else would reach it. A
style of a class (group) cannot be taken out."""

WITHOUT_CAUSE = """Once the mark is taken out of the inputs themselves, the networks read {reach} of those that were
wrong rightly (mean over the {count} with a mark); the rest are their other mistakes. On these faults the default
repairs {repaired}."""

AGAINST_DE = """`de` is the paper's search. It knows no budget and hands back one patch, so that copies of it with
three quarters, half and a quarter of the change can be chosen too. All rows are over the faults and seeds it
finished."""

SETS = """Recipes were decided on one set of faults and are judged by another: other classes, places, colours and seeds
for planted faults, other ranks for confusions. The tables above are over those that judge. Two things were not decided
so: that `margin@conv` is left out where the others repair a quarter was picked after the judging faults of c10-resnet
had been seen, and that a patch of whole directions has to be ahead of single weights by more than chance after a first
run of some judging faults, so that patches can be read. `gate` and `gates` were made on deciding faults alone. How
careful the choice is was set on deciding faults too, as the least caution that keeps each budget there in 85 % of runs,
but after it was known that the rule before kept too few on judging ones. Faults that end in `-c` were planted when most
rules had been made."""

AGAIN = """## To make it again

[Subjects and planted faults](reproducing-the-paper.md#subjects-and-planted-faults) says how the networks are trained. A
run that has its result file is skipped.

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study budgets --part judge --searcher auto --results examples/study/results/present --minutes 20
python -m examples.study without-cause                        # what networks read rightly without the mark
python -m examples.study report                               # this page and its figure
```"""
