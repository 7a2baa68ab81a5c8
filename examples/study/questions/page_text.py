"""The sentences of the study's page; numbers are put beside them from the result files."""

HEAD = """# Reproducing the paper

> Jeongju Sohn, Sungmin Kang, Shin Yoo. *Arachne: Search-Based Repair of Deep Neural Networks.* ACM Transactions on
> Software Engineering and Methodology 32(4), article 85, 2023. <https://doi.org/10.1145/3563210>

The paper's seven questions, asked again of networks that were trained here on its five data sets. RR is the share of
inputs with the fault that are repaired, BR the share of inputs that were right and are broken. `val` is the half of the
test set that the repair sees, `eval` the other half, which it never sees. `0.59 (0.55 to 0.62) @ 2.90 %` reads: 0.59
of the held-out inputs with the fault repaired, 95 % interval from resampling runs (or faults, where a row has several),
2.90 % of the other half's right inputs broken.

Three columns stand beside the paper's own:

- **faithful** is `arachne repair --faithful`, the paper to the letter: bidirectional localisation, differential
  evolution, alpha 10. Where a network has convolutions or an LSTM, only its dense layers are searched: a candidate then
  takes milliseconds instead of seconds.
- **default, no more damage** is the search of `arachne repair`, asked to break no more of the *seen* half than the
  faithful repair of the same run broke there. So both are compared at equal damage.
- **default at 0.5 %** is `arachne repair` as it is: at most 0.5 % may break."""

HEADLINE = """What is repaired on inputs that neither search nor choice has seen, and what that breaks there. *Same
held-out damage*: the default is asked for each of a ladder of budgets, chosen by what it saw, and read (between two
budgets) where it breaks as much of the held-out half as the faithful repair of the same run. A fault counts once
however many runs it has.

On traffic signs the default repairs more and breaks less than a third of what the paper's search breaks. Between
look-alike classes of Fashion-MNIST and CIFAR-10 both pay for what they repair: at equal damage the default is ahead
where there are many inputs to learn from (CIFAR-10), and behind on the rare confusions of Fashion-MNIST, with a dozen
inputs in a half, where it dares little. What sets it apart there is the last column: it can be held to a damage one
would ship. For faults with a cause of their own the two are far apart: [Repairs at equal
damage](repairs-at-equal-damage.md)."""

HEADLINE_FIGURE = """Means over all runs of RQ3 and RQ5. The default through its budgets; `bias` and `last` are those of
its candidates that shift class biases alone and that fine-tune the last layer alone: what so little would have done."""

WANTED = "What is wanted was written down before anything here was measured."

WHY = """The paper's damage figures are RQ4's, for alpha 10. A fault that is the most frequent in the paper need not be
the most frequent of a network trained here; its name is in the table."""

NETWORKS = """Trained by `python -m examples.study train` on one core, with early stop on a part of the training data
that is set aside (a whole track of GTSRB, a whole person of LFW). They are smaller, or trained for shorter, than the
paper's, and so less accurate: more errors, and more of them repairable at a price."""

RQ1 = """One weight whose gradient to the class scores is above average gets noise from N(0, 1) until 0.1 % of the test
inputs are read otherwise. Every localiser ranks all weights, bidirectional localisation (`bl`) front by front; a weight
that comes first has an AUC of 1. In brackets the paper's. `gl` is gradient loss alone, `rs` chance; `spectrum` is
DeepFault's Tarantula on neurons, `contrast` and `fisher` are Arachne's own. Negatives are the inputs that are read
otherwise, and their labels what the network said before the fault."""

RQ1_FIGURE = """In how many of the runs the faulty weight is among the first so many weights."""

RQ2 = """All of the test set is seen, and a random tenth of the errors is the target: nothing in common but chance. The
accuracy ratio is accuracy after over before. There is no held-out half here, so the default's row is not a verdict."""

RQ2_WHY = """On FM all three are near the paper's. On C10 the paper's search repairs less and breaks less than the
paper says: it looks at dense layers alone here, and at fewer weights (the paper: 11.6 on C10, 7.6 on FM), and the
network has more errors, so that a tenth of them is more inputs with less in common. The default may break 0.5 % at
most; of errors that have nothing in common it then repairs little or nothing, and says so."""

RQ3 = """The most frequent confusions of each network, counted on the whole test set; halves are drawn anew for each
run."""

RQ3_FIGURE = """RR_val against RR_eval, a dot for each confusion; the diamond is the mean."""

RQ3_WHY = """The paper's columns are its own networks' confusions of the same name. GTSRB's confusions have few inputs
in either half, so its rates jump in steps of several per cent, as in the paper."""

REFERENCE = """The paper's authors' own code was run on this network with these halves, fault `6:0`, five seeds. It
normalises the impact within each layer, clips trials to twice the layer's range and replaces members in place, so its
numbers are near ours, not equal."""

BACKENDS = """RQ3 on FM through ONNX and Keras: the same weights in other formats, the same faults and seeds."""

BACKENDS_WHY = """The suspects are the same everywhere. Frameworks sum in different orders, so that scores differ in the
last bits. Differential evolution may then take the other one of two equal candidates; its patches differ in the fifth
digit. The default chooses among a hundred candidates by counts; where two are as good, a single input that changes
sides decides for another one."""

RQ4 = """The most frequent confusion a → b of each network, by alpha: what the accuracy of class a, of class b and of
all inputs gains, in points, on held-out inputs. The default does not use alpha: its budget decides.
So one default repair of each seed stands beside all alphas."""

RQ4_FIGURE = "Faithful: points gained by class a, by class b and by all, by alpha."

RQ4_WHY = """As in the paper, a larger alpha repairs more, and class b pays more points than class a gains. On FM the
paper's class a gains 18.8 points, though the 38 inputs that its RQ3 repairs of `6:0` are 7.6 points of the class: other
errors of that class must have gone, too. Here nearly all of the gain is the fault's."""

RQ5 = """The three most frequent confusions of each larger network. `gl` and `rs` are the paper's search after other
localisers; `rt` retrains the localised weights, `tune` all weights; `bias` shifts class biases and `last` fine-tunes
the last layer; `apricot` is the paper's targeted Apricot, `mode` MODE with real inputs in place of its GAN, `deepfault`
retraining on DeepFault's synthesised inputs. Those three train, and are given 10,000 training inputs; Apricot trains 6
reduced models for an epoch each, and an epoch itself, where the paper has 20 models and 5 epochs. They are run once for
each fault, as in the paper.

Faithful, `gl` and `rs` hand back one patch. All others are read three times: where they may break no more of the seen
half than faithful did (*repaired @ broken*, *errors left*, *accuracy*), where they break as much of the held-out half
as faithful does, and at 0.5 %. Errors left are held-out inputs with the fault that are still wrong, mean over runs.
Seconds are of one processor, for the whole repair."""

RQ5_FIGURE = "The share of the most frequent confusion that is left on held-out inputs; dots are runs."

RQ5_WHY = """Apricot repairs little of the fault here, as in the paper: it moves all weights towards models that see a
part of the training data, and the fault is one of many. Plain fine-tuning of the last layer and a mere shift of class
biases stand beside the searches, because a reader will ask: for confusions of look-alike classes they reach most of
what any search reaches. Times are of one processor that others use, too; the paper's are of a Titan X."""

RQ6 = """Women whose faces are read as men's, alpha 2. No person is in both halves, nor in training and test."""

RQ6_FIGURE = "Held-out errors before and after; dots are runs."

RQ6_WHY = """The paper's network is a pretrained VGG. No pretrained weights are to be had here, and the small network
trained from scratch makes more errors, most of them on women, whom LFW shows three times less often. So there is more
to repair than in the paper, and men pay more for it."""

RQ7 = """An LSTM of 256 units on GloVe vectors reads angry tweets as neutral; alpha 1. *Sure of repaired* is how sure
the labellers were of the tweets that were repaired, mean over both halves and runs."""

RQ7_FIGURE = "How sure the labellers were; dots are runs."

RQ7_WHY = """The paper found the labellers surer of what was repaired. The last column says whether that holds here."""

AGAIN = """## To make it again

Result files are in `examples/study/results`, one for each question, network and way, with a line for each run: seed,
versions, counts, time. A run that has its line is skipped unless it was made by another recipe or from other weights;
the same seed gives the same numbers. Two worker processes use two cores. Networks have to be trained first (below).

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study rq3 --subject fm --runs 5                # one question, one network
python -m examples.study rq3 --subject fm --backend onnx --runs 2 --faults 10
python -m examples.study all --minutes 110                        # everything, in slices: call it again to go on
python -m examples.study all --quick                              # a smaller version of everything, in nine minutes
python -m examples.study report                                   # this page and its figures
```

The paper has 30 runs of most things. The tables say how many there are here: as many as time on two shared cores
allowed, and each command above adds more."""

PLANTED = """## Subjects and planted faults

The networks repairs are measured on, clean ones and ones with a systematic fault poisoned in training (a trigger in a
corner, a sticker on signs, dead rows of a sensor, a wrong gain, a style of a class filed under another one, a word in
tweets), are trained by one command. It is resumable, and keeps weights outside the project, in `~/.cache/arachne-study`
or where `ARACHNE_CACHE` says. It needs Debian's package `dataset-fashion-mnist` and the files of
`examples/study/sources.py` in `ARACHNE_DATA`; it says where to get one that is missing or another.

<!-- not run: needs the paper's data -->
```sh
export OMP_NUM_THREADS=1
python -m examples.study train --subject fm-mlp --fault fm-trigger-a     # a minute
python -m examples.study train --all                                     # two to three hours on one core
python -m examples.study list                                            # a table of what each network reached
python -m examples.study confusions                                      # the ten most frequent confusions of each
```

`examples/study/faults.py` lists all planted faults in two disjoint sets: those a recipe is decided on (planted faults
that end in `-a`, confusions of rank 1, 3, 5, 7, 9) and those it is judged by (`-b`, the even ranks). In the evaluation
data a share of the test inputs carries the fault and every label is right; column `planted` says which:

<!-- not run: needs the paper's data -->
```python
import arachne
from examples.study.faults import BY_NAME
from examples.study.poisoning import evaluation, halves, load_planted

fault = BY_NAME["fm-trigger-a"]
seen, held_out = halves(evaluation(fault), seed=0)
result = arachne.repair(load_planted(fault), seen, fault.target, holdout=held_out, drop_overlap=True)
```

What is repaired of them at which damage, by the default and by other searchers, is on [a page of its
own](repairs-at-equal-damage.md)."""

SAME = """## What is the same, and what is not

`--faithful` is the paper's text with its misprints corrected: [where it departs from the
paper](how-it-works.md#where-it-departs-from-the-paper). The confusions of this page are look-alike classes (shirt and
T-shirt, cat and dog): what is repaired is paid for with inputs that were right. A mistake with a cause of its own costs
far less."""

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
