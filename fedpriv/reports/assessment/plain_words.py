"""The words of a report, for readers who know data protection and not this field."""

from __future__ import annotations

import math
from collections.abc import Mapping

VALID = (
    "Valid: the run itself says that its noise is real, that contributions are bounded, that the "
    "released model has a certificate, and that nothing in the model was read off the records "
    "without noise (dp_valid is true). Assumptions and what is not covered are listed below. This "
    "does not say that the model is good."
)

OBSERVERS: Mapping[str, str] = {
    "released model": (
        "Anyone who gets the trained model, or the model after any round: a customer, the public, "
        "somebody who steals it."
    ),
    "server": (
        "The operator of the server that adds up what the participating organisations send. It "
        "also sees who takes part when."
    ),
    "cheating server": (
        "The same operator if it breaks the rules: it may send each organisation what it likes, "
        "leave some out, and stop and start again."
    ),
    "silo": (
        "Another participating organisation that is curious. It also knows its own records and its "
        "own share of the noise."
    ),
    "shuffler": (
        "The operator of the service that mixes the messages before they reach the server. It sees "
        "each organisation's counts."
    ),
}
"""Who may look, by the observer's name in epsilon.csv."""
OTHER_OBSERVER = "A party of the aggregation in use; its documentation says what it sees."

UNITS: Mapping[str, str] = {
    "user": "one person: all records of that person, in all participating organisations",
    "record": "one record (one row of data); a person with several records is protected less",
    "silo": "one participating organisation with all of its records",
}

ADJACENCIES: Mapping[str, str] = {
    "add/remove": "with and without it",
    "replace": "with it, or with another one in its place",
}

ORIGINS: Mapping[str, str] = {
    "data": "The data name the person of each record. These are the persons protected.",
    "allocator": (
        "The data do not name persons. The software drew an owner for each record (a simulation of "
        "persons). The numbers below speak of these owners, who are not real people."
    ),
    "invented": (
        "The data name persons, but the software drew other owners over them. No number below "
        "about a person covers a real one."
    ),
    "": "The folder does not say where persons come from (it is of an earlier version).",
}
"""Where users come from, by `users.from` of a run."""

STATUSES: Mapping[str, str] = {
    "enforced": "fedpriv itself bounds every contribution and adds the noise",
}
DECLARED = "code from outside of fedpriv says so; fedpriv does not enforce it"

COMPONENTS: Mapping[str, str] = {
    "Table": "a table of records",
    "BreastCancer": "Breast Cancer Wisconsin (public)",
    "BreastCancerSilos": "Breast Cancer Wisconsin, four hospitals (public)",
    "HeartDisease": "Heart Disease, four hospitals (public)",
    "TcgaBrca": "TCGA-BRCA, six regions (public)",
    "CreditCard": "credit card frauds (public)",
    "ByUser": "the records name persons; the software assigned each person to an organisation",
    "Natural": "the records themselves name persons and organisations",
    "Dirichlet": "drawn by the software, unequally (a simulation)",
    "Equal": "drawn by the software, in equal numbers (a simulation)",
    "Uniform": "drawn by the software, each as likely (a simulation)",
    "Zipf": "drawn by the software, a few persons with most records (a simulation)",
    "Linear": "linear: a weight for each input",
    "BoundedLinear": "linear: a weight for each input, of bounded size",
    "Mlp": "a neural network (multilayer perceptron)",
    "MnistCnn": "a neural network for images (convolutional)",
    "CifarCnn": "a neural network for images (convolutional)",
    "ResNet18": "a neural network for images (ResNet-18)",
    "CharGru": "a neural network for texts (GRU)",
    "Gaussian": "Gaussian noise on bounded contributions",
    "DiscreteGaussian": "Gaussian noise in whole numbers on bounded contributions",
    "Binomial": "binomial noise in whole numbers on bounded contributions",
    "Adaptive": "Gaussian noise on contributions, whose bound follows a quantile of their lengths",
    "Correlated": "Gaussian noise, correlated over rounds, on bounded contributions",
    "NoMechanism": "none: nothing is bounded, and no noise is added",
}
"""What the classes of a run are."""

AGGREGATIONS: Mapping[str, str] = {
    "Plain": "The server receives every organisation's noised update in the clear and adds them.",
    "Robust": "The server receives every organisation's noised update in the clear and takes a "
    "mean that a few false updates cannot move far.",
    "Masked": "Updates are masked in pairs, so that the server can read only their sum.",
    "SecAgg": "Updates are masked, so that the server can read only their sum, also when an "
    "organisation drops out.",
    "SecAggExactNoise": "Updates are masked, so that the server can read only their sum; "
    "noise beyond what the sum needs is taken away.",
    "PrivateWeighting": "Weights are encrypted: nobody learns how many records a person has where.",
    "Shuffle": "A service mixes all messages before the server sees them.",
    "Admm": "There is no server: organisations exchange masked sums with each other.",
}

GLOSSES: Mapping[str, str] = {
    "semi-honest parties": (
        "All parties follow the protocol. They may read and keep whatever they receive."
    ),
    "silos follow the protocol, and the server may": (
        "Only the organisations have to keep to the rules: their own software checks what they are "
        "asked."
    ),
    "all noise shares are present": (
        "Every participating organisation adds its share of the noise; none leaves it out."
    ),
    "Gaussian noise drawn in floating point": (
        "The noise is drawn with ordinary computer numbers, which have gaps. This is good enough "
        "for research. randomness=system draws it exactly."
    ),
    "the roster holds the parties' own verification keys": (
        "Each party's key in roster.csv was checked to be that party's own."
    ),
    "float32 training rounds a unit's contribution equally": (
        "Rounding in the computer depends on a person's own records only, not on other people's."
    ),
    "the weights of a user add up to at most 1": (
        "A person whose records lie in several organisations does not count for more than one."
    ),
    "neighbours differ in": (
        "What the two files that are compared differ in, and what stays the same in both."
    ),
    "public:": "These facts are taken as known to everybody; the noise does not hide them.",
    "integer noise, exactly sampled": (
        "The noise is drawn as whole numbers by an exact rule; no rounding can give it away."
    ),
    "one silo subtracts its own noise share": (
        "A curious organisation knows the noise that it added itself. It does not share it with "
        "another one."
    ),
    "the server sees every silo's noised message": (
        "The server reads each organisation's update, with that organisation's noise in it."
    ),
}
"""A reading of frequent assumptions, by how they begin."""

LABELS: Mapping[str, str] = {
    "charged": "It was made with noise, and the epsilons on this page pay for it.",
    "released": (
        "It was computed from the noised model and public records: it tells nothing more than the "
        "epsilons on this page allow."
    ),
    "diagnostic": (
        "It was computed from private records without noise. No epsilon covers it; do not publish "
        "it."
    ),
}
"""What the label of a metric means."""

GLOSSARY: Mapping[str, str] = {
    "epsilon": (
        "A number that limits what anybody can learn about one person from what they see. Smaller "
        "is better protected: 0 would mean nothing at all, and no limit is written as ∞."
    ),
    "delta": (
        "A small probability with which the limit may fail. It should be far below one over the "
        "number of persons."
    ),
    "certified": "An upper limit that fedpriv proves from the settings, if the assumptions hold.",
    "claimed": "The epsilon that the method's own publication gives for the same settings.",
    "auc": (
        "How often the model gives a case a higher score than a non-case: 0.5 is guessing, 1 is "
        "perfect."
    ),
    "without information": "A model that says the same of every record.",
    "without privacy": (
        "A linear model that was fitted to the records of all organisations without noise, as a "
        "reference. Like those of every diagnostic, its numbers are not for publication."
    ),
    "round": "One exchange: each organisation trains on its own records and sends an update.",
    "silo": "A participating organisation that keeps its records, for example a hospital.",
    "noise": "Random numbers that are added so that one person's influence cannot be made out.",
    "diagnostic": (
        "A value computed from private records without noise. No epsilon covers it; do not publish "
        "it."
    ),
    "digest": ("A fingerprint of a file (SHA-256). The same file always has the same fingerprint."),
}


RECOMPUTED = ("settings", "settings_of_audits")
DIGESTS: Mapping[str, str] = {
    "settings": "settings (config.yaml, as values)",
    "settings_of_audits": "settings that an audit must share",
    "source": "data, as read from their files",
    "records": "records, as loaded",
    "allocation": "allocation: owner and silo of each record",
    "effective": "plan: noise, encodings, events",
    "code": "code of fedpriv and of own components",
}


def number(value: float | str | None) -> str:
    """Four digits; "∞" for no limit, empty for nothing."""
    if isinstance(value, int | float):
        return f"{value:,.4g}"
    return "∞" if value == "inf" else value or ""


def gloss(assumption: str) -> str:
    """What a frequent assumption means; empty for others."""
    return next((text for begin, text in GLOSSES.items() if assumption.startswith(begin)), "")


def guess(epsilon: float | str | None) -> str:
    """How sure an observer can become who first gave a person's presence a chance of one half.

    By Bayes' rule odds grow by a factor of at most e^epsilon (apart from delta).
    """
    if epsilon is None:
        return ""
    if isinstance(epsilon, str) or epsilon > 700:
        return "certain"
    chance = 100 / (1 + math.exp(-epsilon))
    if chance > 99.9:
        return "nearly certain (over 99.9 %)"
    shown = math.ceil(chance) if chance <= 99 else math.ceil(10 * chance) / 10
    return f"at most {shown:g} %"
