"""The sentences of the study's page; numbers are put beside them from the result files."""

HEAD = """# Reproducing the paper

> Jeongju Sohn, Sungmin Kang, Shin Yoo. *Arachne: Search-Based Repair of Deep Neural Networks.* ACM Transactions on
> Software Engineering and Methodology 32(4), article 85, 2023. <https://doi.org/10.1145/3563210>

The paper's seven questions, asked again of networks that were trained here on its five data sets. RR is the share of
inputs with the fault that are repaired, BR the share of right inputs that are broken. `val` is the half of the test set
that the repair sees, `eval` the other half. `0.59 (0.55 to 0.62) @ 2.90 %` reads: 0.59 of the held-out inputs with the
fault repaired, 95 % interval from resampling runs (or faults), 2.90 % of the held-out right inputs broken.

- **faithful** is `arachne repair --faithful`, the paper to the letter, alpha 10. Where a network has convolutions or an
  LSTM, only its dense layers are searched.
- **default, no more damage** is the search of `arachne repair`, asked to break no more of the *seen* half than the
  faithful repair of the same run broke there.
- **default at 0.5 %** is `arachne repair` as it is: at most 0.5 % may break."""

HEADLINE = """*Same held-out damage*: the default is asked for each of a ladder of budgets and read, between two of
them, where it breaks as much of the held-out half as the faithful repair of the same run. A fault counts once however
many runs it has. *One budget for all*: the same budget for every fault of the row, read where the default breaks as
much in the mean over them as the faithful repairs do. Where a run breaks a dozen inputs, its own damage is mostly
chance, and repairs grow less and less with damage: a reading at each run's own damage is below one at their mean.

On traffic signs the default repairs more and breaks less than a third of what the paper's search breaks. Between
look-alike classes of Fashion-MNIST and CIFAR-10 both pay for what they repair; at equal damage the default is ahead
on CIFAR-10. Over thirty confusions of Fashion-MNIST it is a little behind where each run is read at its own damage,
and level at one budget for all, both within what chance explains: most of these have fewer than twenty inputs in a
half, and each counts as much as the first. The last column is what sets it apart: it can be held to a damage one would
ship. For faults with a cause of their own the two are far apart: [Repairs at equal
damage](repairs-at-equal-damage.md)."""

HEADLINE_FIGURE = """Means over all runs of RQ3 and RQ5. `bias` and `last` are the default's candidates that shift
class biases alone and that fine-tune the last layer alone."""

WANTED = "What is wanted was written down before anything here was measured."

WHY = """The paper's damage figures are RQ4's, for alpha 10. A fault that is the most frequent in the paper need not be
the most frequent of a network trained here; its name is in the table."""

NETWORKS = """Trained by `python -m examples.study train` on one core, with early stop on training data set aside.
They are smaller, or trained for shorter, than the paper's, and so less accurate: more errors, and more of them
repairable."""

RQ1 = """One weight whose gradient to the class scores is above average gets noise from N(0, 1) until 0.1 % of the test
inputs are read otherwise. Every localiser ranks all weights; a weight that comes first has an AUC of 1. In brackets the
paper's. `gl` is gradient loss alone, `rs` chance; `spectrum` is DeepFault's Tarantula on neurons, `contrast` and
`fisher` are Arachne's own."""

RQ1_FIGURE = """In how many of the runs the faulty weight is among the first so many weights."""

RQ2 = """All of the test set is seen, and a random tenth of the errors is the target: nothing in common but chance.
There is no held-out half here."""

RQ2_WHY = """On FM all three are near the paper's. On C10 the paper's search looks at dense layers alone here, at
fewer weights (the paper: 11.6 on C10, 7.6 on FM), in a network with more errors. The default may break 0.5 % at most;
of errors that have nothing in common it then repairs little or nothing, and says so."""

RQ3 = """The most frequent confusions of each network, counted on the whole test set; halves are drawn anew for each
run. Their means are in the first table of this page; `python -m examples.study rq3` prints every confusion."""

RQ3_FIGURE = """RR_val against RR_eval, a dot for each confusion; the diamond is the mean."""

RQ3_WHY = """The paper's columns are its own networks' confusions of the same name. GTSRB's confusions have few inputs
in either half, so its rates jump in steps of several per cent, as in the paper."""

REFERENCE = """The authors' own code was run on this network with these halves, fault `6:0`, five seeds. It normalises
the impact within each layer, clips trials to twice the layer's range and replaces members in place, so its numbers
are near ours, not equal."""

BACKENDS = """RQ3 on FM through ONNX and Keras: the same weights in other formats, the same faults and seeds."""

BACKENDS_WHY = """The suspects are the same everywhere. Frameworks sum in different orders, so that scores differ in
the last bits; where two candidates are as good, one input that changes sides may decide."""

RQ4 = """The most frequent confusion a → b of each network: what the accuracy of class a, of class b and of all inputs
gains, in points, on held-out inputs. The default does not use alpha: its budget decides."""

RQ4_FIGURE = "Faithful: points gained by class a, by class b and by all, by alpha."

RQ4_WHY = """As in the paper, a larger alpha repairs more, and class b pays more points than class a gains. On FM the
paper's class a gains 18.8 points, though the inputs that its RQ3 repairs of `6:0` are 7.6 points of the class: other
errors of that class must have gone, too."""

RQ5 = """The three most frequent confusions of each larger network. `gl` and `rs` are the paper's search after other
localisers; [the other ways](../docs/reference/cli.md#searchers) are Arachne's searchers. `apricot`, `mode` (with real
inputs in place of its GAN) and `deepfault` train, and are given 10,000 training inputs; Apricot trains 6 reduced
models for an epoch each, where the paper has 20 models and 5 epochs.

Faithful, `gl` and `rs` hand back one patch. All others are read three times: where they may break no more of the seen
half than faithful did (*repaired @ broken*, *errors left*, *accuracy*), where they break as much of the held-out half
as faithful does, and at 0.5 %. Seconds are of one processor, for the whole repair."""

RQ5_FIGURE = "The share of the most frequent confusion that is left on held-out inputs; dots are runs."

RQ5_WHY = """Apricot repairs little of the fault here, as in the paper. For confusions of look-alike classes,
fine-tuning the last layer and shifting class biases reach most of what any search reaches. The paper's times are of a
Titan X."""

RQ6 = """Women whose faces are read as men's, alpha 2. No person is in both halves, nor in training and test."""

RQ6_FIGURE = "Held-out errors before and after; dots are runs."

RQ6_WHY = """The paper's network is a pretrained VGG. The small network trained from scratch here makes more errors,
most of them on women, whom LFW shows three times less often; so there is more to repair, and men pay more for it."""

RQ7 = """An LSTM of 256 units on GloVe vectors reads angry tweets as neutral; alpha 1. *Sure of repaired* is how sure
the labellers were of the tweets that were repaired, mean over both halves and runs."""

RQ7_FIGURE = "How sure the labellers were; dots are runs."

RQ7_WHY = """The paper found the labellers surer of what was repaired. The last column says whether that holds here."""

AGAIN = """## To make it again

Result files are in `examples/study/results`, with a line for each run; a run that has its line is skipped, and the same
seed gives the same numbers. Networks have to be trained first (below). The paper has 30 runs of most things; the tables
say how many there are here.

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study rq3 --subject fm --runs 5                # one question, one network
python -m examples.study all --minutes 110                        # everything, in slices: call it again to go on
python -m examples.study all --quick                              # a smaller version of everything, in nine minutes
python -m examples.study report                                   # this page and its figures
```"""

PLANTED = """## Subjects and planted faults

The networks, clean ones and ones with a systematic fault poisoned in training (a trigger in a corner, a sticker on
signs, dead rows of a sensor, a wrong gain, a style of a class filed under another one, a word in tweets), are trained
by one resumable command, which keeps weights in `~/.cache/arachne-study` or where `ARACHNE_CACHE` says. It needs
Debian's package `dataset-fashion-mnist` and the files of `examples/study/sources.py` in `ARACHNE_DATA`.

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study train --subject fm-mlp --fault fm-trigger-a     # a minute
python -m examples.study train --all                                     # two to three hours on one core
python -m examples.study list                                            # a table of what each network reached
```

`examples/study/faults.py` lists all planted faults in two disjoint sets: those a recipe is decided on (`-a`,
confusions of rank 1, 3, 5, 7, 9) and those it is judged by (`-b`, the even ranks). In the evaluation data a share of
the test inputs carries the fault and every label is right; column `planted` says which."""

SAME = """## What is the same, and what is not

`--faithful` is the paper's text with its misprints corrected: [where it departs from the
paper](../docs/how-it-works.md#where-it-departs-from-the-paper). The confusions of this page are look-alike classes
(shirt and T-shirt, cat and dog): what is repaired is paid for with inputs that were right. A mistake with a cause of
its own costs far less."""

OWN_STUDY = """## Your own study

Every part can be exchanged from Python: a localiser, a searcher, the settings of either.

```python
import arachne

data = arachne.read_data("digits.npz")
model = arachne.load("digits.onnx")
for localiser in (arachne.Bidirectional(), arachne.GradientLoss(count=5), arachne.RandomChoice(count=5)):
    result = arachne.repair(model, data, "*:7", faithful=True, localiser=localiser, seed=0)
    held_out = result.evidence.held_out
    print(f"{localiser.name}: RR {held_out.repair_rate:.3f}, BR {held_out.break_rate:.4f}")
```

`Localisation.ranking` has every weight from most to least suspicious, front by front, for studies of injected faults;
`SearchResult.history` every generation.

```python
found = arachne.localise_weights(model, data, "*:7")
print([str(found.address_of(row)) for row in found.ranking[:3]])
```"""
