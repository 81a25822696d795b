"""Intents of a help desk, from texts to a head that is used for years.

It asks for advice and fits a head, adds a new intent from 20 samples after a week, forgets a
customer, and writes labels. Everything that is kept is in files.

    pip install '.[text]'
    python examples/intents.py --backbone st:sentence-transformers/all-MiniLM-L6-v2
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import polars as pl

import lastlayer as ll
from lastlayer.estimator.fitting import fit, forget, predict
from lastlayer.extraction.from_texts import extract_texts

# What people ask, in five ways; the last is never learned, so that it can be tested.
ASKED = {
    "balance": ("what is my balance", "how much money do I have", "how full is my account",
                "do I have any funds left", "tell me what is in my account"),
    "transfer": ("send money to my sister", "I want to transfer 50 euros", "pay my landlord",
                 "move cash to another bank", "wire 200 euros to my brother"),
    "lost card": ("I cannot find my card", "my card was stolen", "please block my card",
                  "someone took my wallet with the card", "my bank card has gone missing"),
    "new pin": ("I forgot my pin", "how do I change my secret number", "my code is wrong",
                "the machine does not accept my pin", "I do not remember my pin code"),
    "address": ("I have moved", "change the street in my file", "my letters go to the old flat",
                "please note my new home", "I live somewhere else now"),
    "loan": ("can I borrow money", "what does a loan cost", "I want to buy a house on credit",
             "lend me 5000 euros", "which interest do you take for a mortgage"),
}  # fmt: skip
NEW = {
    "travel": ("does my card work abroad", "I fly to Peru", "can I pay in dollars on holiday",
               "which fee do you take in other countries", "I am going on a trip to Japan"),
}  # fmt: skip
BEFORE = ("", "hello, ", "excuse me, ", "a question: ", "hi there, ", "good morning, ", "hey, ")
AFTER = ("", " please", ", can you help", ", thank you", ", it is urgent", ", what shall I do")


def said(asked: dict[str, tuple[str, ...]], n: int) -> pl.DataFrame:
    """Let customers say the same thing in many words: so many texts for each intent to learn."""
    rows = []
    for intent, (*learned, tested) in asked.items():
        for split, texts, most in (("train", learned, n), ("test", [tested], 20)):
            ways = itertools.islice(itertools.product(AFTER, BEFORE, texts), most)
            for place, (after, before, text) in enumerate(ways):
                rows.append((f"{before}{text}{after}", intent, f"customer {place % 9}", split))
    return pl.DataFrame(rows, schema=["text", "intent", "customer", "split"], orient="row")


def main(backbone: Any, folder: Path) -> dict[str, float]:
    """Go the whole way in a folder; give the share of right answers at each step."""
    right = {}
    said(ASKED, 80).write_csv(folder / "intents.csv")
    features, head = folder / "intents.safetensors", folder / "head.safetensors"
    data = extract_texts(
        folder / "intents.csv", "text", "intent", backbone, features, domains=["customer"]
    )
    print(data)

    advice = ll.advise(data, "incremental:3", forgets=True, heads=["mean", "slda", "ridge", "knn"])
    print(advice.answer)
    clf = fit(data, advice.head)
    clf.save(head)
    right["first"] = predict(clf, data, rows="test")[1]["test"]

    # A week later: 20 samples of an intent that nobody had thought of.
    said(NEW, 20).write_csv(folder / "week.csv")
    week = extract_texts(
        folder / "week.csv", "text", "intent", backbone, folder / "week.safetensors"
    )
    clf = fit(week, head)
    clf.save(head)
    right["new intent"] = predict(clf, week, rows="test")[1]["test"]
    right["others, after it"] = predict(clf, data, rows="test")[1]["test"]

    # A customer asks to be forgotten: the rows of the training set that are theirs.
    mine = data.train.labels["customer"] == data.names["customer"].index("customer 3")
    labels = [data.names["intent"][c] for c in data.train.y[mine].tolist()]
    frame = pl.DataFrame({"z": data.train.z[mine].float().numpy(), "intent": labels})
    frame.write_parquet(folder / "customer.parquet")
    gone, _ = forget(clf, folder / "customer.parquet", label="intent")
    clf.save(head)
    print(f"forgot {gone} rows: {clf.head_.proof}")

    answers, shares = predict(ll.HeadClassifier.load(head), data, rows="test")
    answers.write_csv(folder / "labels.csv")
    right["without the customer"] = shares["test"]
    for step, share in right.items():
        print(f"{step}: {share:.1%} right")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", default="st:sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--folder", type=Path, default=Path("runs/intents"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    main(chosen.backbone, chosen.folder)
