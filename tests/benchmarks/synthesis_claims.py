"""Make the claims by which the verification of a synthesis is measured: documents of ours, 400
sentences that a section of them bears out, and 200 that none does.

    python -m tests.benchmarks.synthesis_claims   # writes tests/fixtures/synthesis/claims.json

The seed is fixed, and the digest of the file stands beside it: the file was made before the code
that it measures.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

SEED = 53
FOLDER = Path(__file__).parents[1] / "fixtures" / "synthesis"
CLAIMS, DIGEST = FOLDER / "claims.json", FOLDER / "claims.sha256"
DOCUMENTS, SENTENCES = 60, 6
EACH_SUPPORTED, EACH_PLANTED = 80, 40

_PEOPLE = [
    "Asta",
    "Bruno",
    "Chidi",
    "Dalia",
    "Emre",
    "Farid",
    "Greta",
    "Hana",
    "Ivo",
    "Jonas",
    "Keiko",
    "Lior",
    "Mireille",
    "Nadia",
]
_PEOPLE += [
    "Oskar",
    "Priya",
    "Quentin",
    "Rosa",
    "Sven",
    "Tomasz",
    "Ulla",
    "Viktor",
    "Wanda",
    "Yusuf",
    "Zofia",
]
_SERVICES = [
    "ledger",
    "gateway",
    "scheduler",
    "catalogue",
    "mailer",
    "billing",
    "archive",
    "renderer",
]
_SERVICES += ["importer", "planner", "notifier", "resolver"]
_PLACES = [
    "Porto",
    "Tampere",
    "Gdansk",
    "Lyon",
    "Turin",
    "Bergen",
    "Leipzig",
    "Ghent",
    "Split",
    "Cork",
]
_STORES = [
    "Postgres",
    "SQLite",
    "Redis",
    "Kafka",
    "Cassandra",
    "MinIO",
    "RabbitMQ",
    "DynamoDB",
    "ClickHouse",
    "etcd",
]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
]
_INVENTED = (
    "with a satellite link",
    "after a hydraulic inspection",
    "under the umbrella of a lunar charter",
    "together with a choir of volunteers",
    "by means of carrier pigeons",
    "for the benefit of the opera house",
    "behind a granite firewall",
    "during the beekeeping congress",
)

# Each frame: the sentence, the part of it that stands alone, the same in another order, the same in
# other words, and its opposite.
_FRAMES: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "{person} moved the {service} from {store} to {other} on {day} {month}, "
        "because restores took {number} minutes.",
        "{person} moved the {service} from {store} to {other} on {day} {month}.",
        "On {day} {month} {person} moved the {service} from {store} to {other}.",
        "The {service} was moved from {store} to {other} by {person}.",
        "{person} did not move the {service} from {store} to {other} on {day} {month}.",
    ),
    (
        "The {service} in {place} answers {number} requests per second, "
        "which {person} measured on {day} {month}.",
        "The {service} in {place} answers {number} requests per second.",
        "{person} measured on {day} {month} which requests per second the {service} answers.",
        "In {place} the {service} answers {number} requests each second.",
        "The {service} in {place} never answers {number} requests per second.",
    ),
    (
        "{person} owns the {service}, and {second} reviews each change of it within {number} "
        "hours.",
        "{person} owns the {service}.",
        "{second} reviews each change of the {service} within {number} hours, and {person} owns "
        "it.",
        "Each change of the {service} is reviewed by {second} within {number} hours.",
        "{person} no longer owns the {service}.",
    ),
    (
        "Backups of the {service} are kept in {place} for {number} days, encrypted with the key "
        "that {person} holds.",
        "Backups of the {service} are kept in {place} for {number} days.",
        "For {number} days backups of the {service} are kept in {place}.",
        "The {service} keeps its backups for {number} days in {place}.",
        "Backups of the {service} are not kept in {place} for {number} days.",
    ),
    (
        "The outage of {day} {month} lasted {number} minutes, since the {service} lost its "
        "connection with {store}.",
        "The outage of {day} {month} lasted {number} minutes.",
        "Since the {service} lost its connection with {store}, the outage lasted {number} minutes.",
        "The {service} lost its connection with {store} in the outage of {day} {month}.",
        "The {service} kept its connection with {store} in the outage of {day} {month}.",
    ),
    (
        "{person} decided against {store} for the {service}, and chose {other} after {number} "
        "trials in {place}.",
        "{person} decided against {store} for the {service}.",
        "After {number} trials in {place} {person} chose {other} for the {service}.",
        "For the {service} {person} chose {other} and decided against {store}.",
        "{person} decided for {store} for the {service}.",
    ),
    (
        "The {service} retries a failed delivery {number} times, and then {person} is called in "
        "{place}.",
        "The {service} retries a failed delivery {number} times.",
        "A failed delivery is retried {number} times, and then {person} is called in {place}.",
        "{person} is called in {place} once the {service} has retried a failed delivery {number} "
        "times.",
        "The {service} does not retry a failed delivery.",
    ),
    (
        "New colleagues in {place} get access to the {service} from {person}, and start with "
        "{number} tasks in {store}.",
        "New colleagues in {place} get access to the {service} from {person}.",
        "From {person} new colleagues in {place} get access to the {service}.",
        "{person} gives new colleagues in {place} access to the {service}.",
        "New colleagues in {place} get no access to the {service} from {person}.",
    ),
)


def _values(rng: random.Random) -> dict[str, Any]:
    person, second = rng.sample(_PEOPLE, 2)
    store, other = rng.sample(_STORES, 2)
    return {
        "person": person,
        "second": second,
        "store": store,
        "other": other,
        "service": rng.choice(_SERVICES),
        "place": rng.choice(_PLACES),
        "month": rng.choice(_MONTHS),
        "day": rng.randint(1, 28),
        "number": rng.randint(31, 989),
    }


def make_claims() -> dict[str, Any]:
    """Return the documents, each a section with its sources, and the claims about them."""
    rng = random.Random(SEED)
    documents = []
    for _ in range(DOCUMENTS):
        frames = rng.sample(_FRAMES, SENTENCES)
        documents.append([(frame, _values(rng)) for frame in frames])
    claims: list[dict[str, Any]] = []

    def add(kind: str, supported: bool, document: int, cited: int, text: str) -> None:
        claims.append(
            {
                "document": document,
                "cited": cited,
                "kind": kind,
                "supported": supported,
                "text": text,
            }
        )

    places = [(number, at) for number in range(DOCUMENTS) for at in range(SENTENCES)]
    for kind, variant in (("verbatim", 0), ("shortened", 1), ("reordered", 2), ("reworded", 3)):
        for number, at in rng.sample(places, EACH_SUPPORTED):
            frame, values = documents[number][at]
            add(kind, True, number, at, frame[variant].format(**values))
    for number, at in rng.sample(places, EACH_SUPPORTED):
        frame, values = documents[number][at]
        head, _, rest = frame[0].format(**values).partition(", ")
        add("joined", True, number, at, f"{head} and {rest}" if rest else head)
    for number, at in rng.sample(places, EACH_PLANTED):
        frame, values = documents[number][at]
        wrong = {**values, "number": values["number"] + rng.randint(1, 9)}
        add("number", False, number, at, frame[0].format(**wrong))
    for number, at in rng.sample(places, EACH_PLANTED):
        frame, values = documents[number][at]
        others = [each for each in _PEOPLE if each not in (values["person"], values["second"])]
        wrong = {**values, "person": rng.choice(others)}
        add("name", False, number, at, frame[0].format(**wrong))
    for number, at in rng.sample(places, EACH_PLANTED):
        other = (number + rng.randint(1, DOCUMENTS - 1)) % DOCUMENTS
        frame, values = documents[other][at]
        add("other_section", False, number, at, frame[0].format(**values))
    for number, at in rng.sample(places, EACH_PLANTED):
        frame, values = documents[number][at]
        text = frame[1].format(**values).removesuffix(".")
        add("invented", False, number, at, f"{text} {rng.choice(_INVENTED)}.")
    for number, at in rng.sample(places, EACH_PLANTED):
        frame, values = documents[number][at]
        add("opposite", False, number, at, frame[4].format(**values))
    texts = [[frame[0].format(**values) for frame, values in each] for each in documents]
    return {"seed": SEED, "documents": texts, "claims": claims}


def main() -> None:
    """Write the claims and their digest."""
    body = json.dumps(make_claims(), indent=1, ensure_ascii=False) + "\n"
    FOLDER.mkdir(parents=True, exist_ok=True)
    CLAIMS.write_text(body, encoding="utf-8")
    DIGEST.write_text(f"{hashlib.sha256(body.encode()).hexdigest()}  claims.json\n")


if __name__ == "__main__":
    main()
