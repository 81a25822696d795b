"""The answer and its reasons in words."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from lastlayer.advice.choosing import MARGIN, Interval
from lastlayer.advice.linear_losses import LINEAR
from lastlayer.advice.needs import time_in_words
from lastlayer.advice.references import KERNEL, References
from lastlayer.advice.stream_words import ALIKE
from lastlayer.catalogue.head_cards import card_of, size_in_words, thrift
from lastlayer.core.names import joined, percent

if TYPE_CHECKING:
    from lastlayer.advice.answer import Advice

WORTH_SAYING = 0.01  # a price of never retraining above this comes first
_REPAIRS = {
    "old_vectors": "only its old vectors",
    "no_later_classes": "only removing later classes",
    "either": "either of the two",
    "both": "only both together",
}


def answer_of(advice: "Advice") -> str:
    """Return which head to use and what its interval covers, preceded by what matters even more."""
    choice, references = advice.chosen, advice.references
    first, use = "", "Use"
    price = references.price()
    if price is not None and price[1].value > WORTH_SAYING:
        first = (
            f"Retraining on everything would be better: a {price[0]} gets "
            f"{percent(references.scores.of(price[0]))} right, {price[1]} points more than the "
            "best head that never retrains. "
        )
    if not choice.learned:
        first, use = (
            (
                "These rows do not show which head to use: none is clearly better than always "
                f"answering '{choice.guess}'. If you need one anyway: "
            ),
            "use",
        )
    reached = _accuracy(choice.scores.accuracy(choice.head))
    name, by, label = choice.head, advice.by, advice.data.label
    if by is not None:
        name += f" and let it learn the finer labels '{by.column}' to answer '{label}'"
    text = f"{first}{use} {name}: it gets {reached} of {_judged_by(advice)} right"
    if by is not None:
        text += f", {by.gain} points more than {advice.choice.head} that learns '{label}' itself."
    elif choice.level:
        are = "is" if len(choice.level) == 1 else "are"
        text += f"; {_few(choice.level)} {are} too close to tell apart from it."
    elif choice.twins:
        give = "gives" if len(choice.twins) == 1 else "give"
        text += f"; {_few(choice.twins)} {give} the same answers."
    elif choice.head != choice.best:
        text += f"; {choice.best} is the best, but costs more."
    else:
        needs = advice.needs
        fits = " that meets " + " ".join(map(needs.words, needs.given)) if needs.given else ""
        text += f", more than any other{fits}."
    return f"{text} {_covered(advice)}"


def _judged_by(advice: "Advice") -> str:
    judgement = advice.judgement
    rows, splits = sum(map(len, judgement.held_y)), len(judgement.splits)
    if judgement.splits[0].held_z is not None:
        return f"{rows} validation rows"
    return f"{rows} held-out rows" + (f" in {splits} splits" if splits > 1 else "")


def _covered(advice: "Advice") -> str:
    """Return what the interval covers, and what fresh rows say of it."""
    fresh = advice.tested or advice.validated
    which = "test" if advice.tested is not None else "validation"
    if fresh is None:
        if advice.stream.near >= ALIKE:
            return (
                "The interval is for rows as much alike as these: "
                f"{100 * advice.stream.near:.0f} % have a near-copy here, "
                "so new rows are likely harder."
            )
        return "The interval is for new rows that are drawn as these were."
    expected = advice.chosen.scores.accuracy(advice.head)
    found = fresh.scores.accuracy(fresh.head)
    if found.high < expected.low:
        harder = f"The {fresh.rows} {which} rows are harder: {_accuracy(found)}"
        return f"{harder}; expect that of new rows."
    return f"Of {fresh.rows} {which} rows it gets {_accuracy(found)}."


def reasons_of(advice: "Advice") -> tuple[str, ...]:
    """Return the reasons, and what else a user should know."""
    return tuple(sentence for reasons in _REASONS for sentence in reasons(advice))


def details_of(advice: "Advice") -> tuple[str, ...]:
    """Return those of the reasons that are for readers who know heads."""
    return tuple(sentence for reasons in _DETAILS for sentence in reasons(advice))


def _choice(advice: "Advice") -> list[str]:
    choice, said = advice.chosen, []
    if choice.head != choice.best:
        said.append(_instead(advice))
    if choice.twins:
        said.append(
            f"{_few([choice.head, *choice.twins])} give the same answers on these rows: the one "
            "that needs least is named."
        )
    if choice.level:
        nearest = choice.level[0]
        close = f"Too close to call on the {_which(advice)} rows: {joined(choice.level)}"
        said.append(
            f"{close}. More rows would tell; {nearest} is {choice.behind[nearest]} points behind."
            if nearest in choice.behind
            else f"{close}."
        )
    return said


def _instead(advice: "Advice") -> str:
    """Say why the best is not the advised one."""
    choice, verdicts = advice.chosen, advice.judgement.verdicts
    head, best, behind = choice.head, choice.best, choice.behind[choice.head]
    costs, less = (
        f"{size_in_words(choice.sizes[name])} and {time_in_words(verdicts[name].latency)} an answer"
        for name in (best, head)
    )
    shown = (
        f"is shown to lose less than {100 * MARGIN:.1f} points"
        if behind.high < MARGIN
        else "cannot be told from it"
    )
    return (
        f"{best} is the best on the {_which(advice)} rows ({costs}); {head} needs less ({less}) "
        f"and {shown} ({behind} behind)."
    )


def _which(advice: "Advice") -> str:
    return "held-out" if advice.judgement.splits[0].held_z is None else "validation"


def _cost(advice: "Advice") -> list[str]:
    choice, judgement, head = advice.chosen, advice.judgement, advice.head
    can, size = card_of(head).abilities, choice.sizes[head]
    keeps = "every row" if can.keeps_samples else "no rows"
    said = [
        f"It keeps {card_of(head).state} ({size_in_words(size)} of memory, {keeps}), "
        f"and one answer takes {time_in_words(judgement.verdicts[head].latency)} on this machine."
    ]
    if card_of(head).by_gradient:
        said.append(
            f"It was judged with features divided by {judgement.scale:.3g}, a learning rate of "
            f"{judgement.verdicts[head].lr:.3g} and {judgement.epochs} epochs of each task, in the "
            "order of the tasks. advice.fit() in Python trains it so; lastlayer fit takes "
            f"--feature-scale {judgement.scale:.3g} --lr {judgement.verdicts[head].lr:.3g} "
            f"--epochs {judgement.epochs}, once for each task."
        )
    thriftier = [
        name for name in choice.behind if thrift(name)[0] < thrift(head)[0] and name != head
    ]
    if thriftier:
        best = max(thriftier, key=choice.scores.of)
        said.append(
            f"{best} keeps no rows ({size_in_words(choice.sizes[best])}) and is "
            f"{choice.scores.difference(head, best)} points behind."
        )
    return said


def _constraints(advice: "Advice") -> list[str]:
    needs, stream = advice.needs, advice.data
    costs = advice.chosen.costs.items()
    said = [f"{needs.words(name)} costs {cost} points." for name, cost in costs]
    single = int((stream.y[stream.rows].bincount() == 1).sum())
    if needs.no_samples and single:
        said.append(
            "No rows are kept, but the mean of a class with a single row is that row; such classes "
            f"here: {single}."
        )
    return said


def _left_to_gain(advice: "Advice") -> list[str]:
    """Say what the best of any kind would gain on the held-out rows."""
    gap = advice.references.left_to_gain()
    if gap is None:
        return []
    reached = percent(advice.references.scores.of(KERNEL))
    more = f"{gap} points more" if gap.low > 0 else "not shown to be more"
    return [f"A {KERNEL}, gets {reached} of the {_which(advice)} rows right: {more}."]


def _price(advice: "Advice") -> list[str]:
    """Say what never retraining costs, on test rows where there are any: none are fresher."""
    references = advice.tested or advice.references
    price = references.price()
    if price is None:
        return ["No reference was trained: the data are too large for that on this machine."]
    name, gap = price
    rows = "test rows" if advice.tested is not None else "same rows"
    gets = f"a {name} gets {percent(references.scores.of(name))} of the {rows} right"
    if gap.high < 0:
        return [f"Never retraining costs nothing here: {gets}, {gap.turned()} points less."]
    if gap.low <= 0:
        return [f"Never retraining is not shown to cost anything: {gets}, {gap} points more."]
    return [f"Never retraining costs {gap} points: {gets}."]


def _linear(advice: "Advice") -> list[str]:
    choice, references = advice.choice, advice.references
    if LINEAR not in choice.scores.names:
        return []
    reached, fall = percent(choice.scores.of(LINEAR)), references.fall(LINEAR)
    falls = fall is not None and fall.low > 0 and fall.value >= MARGIN
    text = f"An ordinary linear layer {'falls to' if falls else 'reaches'} {reached}"
    if fall is not None and fall.low > 0:
        text += f", {fall} points below the same layer trained on everything at once"
    elif fall is not None:
        text += f", no less than when trained on everything at once ({fall} points)"
    return [f"{text}."]


def _repairs(advice: "Advice") -> list[str]:
    """Say what a linear layer that falls has lost, and what would help."""
    why, fall, said = advice.why, advice.references.fall(LINEAR), []
    if (
        LINEAR in advice.choice.scores.names
        and fall is not None
        and fall.low > 0
        and fall.value >= MARGIN
    ):
        lost = {name: share for name, share in why.repairs.items() if share >= 0.001}
        if lost:
            parts = [f"{_REPAIRS[name]} {percent(share)}" for name, share in lost.items()]
            said.append(
                "Rows that it once had right and lost, in % of all rows, by what would bring them "
                f"back: {joined(parts)}."
            )
        remedies = [
            f"{kind} ({name}) {gain.value * 100:+.1f}".replace("-", "−")
            for kind, (name, gain) in why.remedies.items()
        ]
        said.append(f"What would help, in points: {'; '.join(remedies)}.")
    return said


def _clashes(advice: "Advice") -> list[str]:
    pairs = [f"{a} to {b}" for a, b, _ in advice.why.clashes[:3]]
    how = "In the linear layer these classes lie closer to another's weights than to their own"
    return [f"{how}: {joined(pairs)}."] if pairs else []


def _confusions(advice: "Advice") -> list[str]:
    few = advice.why.confusions[:3]
    pairs = [f"{c.true} for {c.taken_for} ({percent(c.share)})" for c in few]
    return [f"{advice.choice.head} most often mistakes {joined(pairs)}."] if pairs else []


def _finer(advice: "Advice") -> list[str]:
    label, said = advice.data.label, []
    for one in advice.finer:
        head = one.choice.head
        reached = f"{percent(one.plain[head])} to {percent(one.choice.scores.of(head))}"
        pays = "pays off" if one.pays else "is not shown to pay off"
        said.append(
            f"'{one.column}' refines '{label}': learning the finer labels and answering the "
            f"coarser ones {pays}. It takes {head}, the best this way, from {reached}: "
            f"{one.gain} points more than {advice.choice.head} that learns '{label}' itself."
        )
    return said


def _test(advice: "Advice") -> list[str]:
    said = [
        f"On {found.rows} {which} rows, used once after the choice, with all training rows "
        f"learned: {joined(list(_reached(found)))}."
        for which, found in (("validation", advice.validated), ("test", advice.tested))
        if found is not None
    ]
    if advice.tested is None:
        judged = "validation rows" if _which(advice) == "validation" else "held-out training rows"
        said.append(f"There are no test rows: the accuracies are those on {judged}.")
    elif known := advice.data.known_sources:
        said.append(
            f"{known} of these test rows come from sources that are among the training rows, and "
            "held-out rows never do: on the test rows every head looks better than on new sources."
        )
    return said


def _reached(found: References) -> Iterator[str]:
    scores, head = found.scores, found.head
    yield f"{head} {_accuracy(scores.accuracy(head))}"
    if LINEAR in scores.names and head != LINEAR:
        yield f"the linear layer {percent(scores.of(LINEAR))}"
    yield from (f"a {name} {percent(scores.of(name))}" for name in found.names)


def _unjudged(advice: "Advice") -> list[str]:
    """Name the classes that sources keep from being judged, and the tasks without held-out rows."""
    stream, splits, said = advice.data, advice.judgement.splits, []
    held = torch.cat([split.held for split in splits])
    rows = stream.y[stream.rows].bincount(minlength=stream.n_classes)
    # A class with a single row is never held out either; the stream in words names those.
    never = (rows > 1) & (stream.y[held].bincount(minlength=stream.n_classes) == 0)
    if stream.group is not None and bool(never.any()):
        names = [stream.names[c] for c in never.nonzero()[:, 0].tolist()]
        said.append(
            f"{len(names)} of {int((rows > 0).sum())} classes ({_few(names)}; "
            f"{int(rows[never].sum())} rows) come from one source each: learned from, but not "
            "judged by."
        )
    come = {task for split in splits for task in split.task_in(stream).tolist()}
    if without := set(range(stream.n_tasks)) - come:
        numbers = _few([str(task + 1) for task in sorted(without)])
        tasks = (
            f"Tasks {numbers} have" if len(without) > 1 else f"Of the stream, task {numbers} has"
        )
        said.append(f"{tasks} no held-out rows: learned from, but not judged by.")
    return said


def _left_out(advice: "Advice") -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, text in advice.judgement.left_out.items():
        reasons.setdefault(text, []).append(name)
    return [f"Left out: {joined(names)} ({text})." for text, names in reasons.items()]


_REASONS = (
    _choice, _cost, _constraints, _price, _left_to_gain, _linear, _repairs, _clashes, _confusions,
    _finer, _test, _unjudged, _left_out,
)  # fmt: skip
_DETAILS = (_repairs, _clashes, _left_out)


def _accuracy(accuracy: Interval) -> str:
    return f"{percent(accuracy.value)} ({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f})"


def _few(names: Sequence[str]) -> str:
    return joined(names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"])
