"""Cheating servers of masked sums, alone or with colluding silos, on real silos: other keys for
some silos, keys of other set-ups, other models, queries asked of some silos only, in another order
or after another set-up.

What a coalition learns is worked out from the masks between inputs and messages, as numbers: all
combinations of messages in which masks that it does not know cancel. It must be at most the sum of
all honest silos' inputs, once for each query of a set-up in which all of them were sent the same.
"""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from parties_of_generators import Protocols, run
from queries import query_for
from secagg.coalition_view import eliminated

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.aggregation.weighted import KEY, KEYS
from fedpriv.crypto.digest import digest
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.x25519 import PrivateKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast, SetUpTask

SIZE = 2
MODELS = [Broadcast({"params": np.full(SIZE, value)}) for value in (0.0, 1.0)]


class Coalition:
    """A server and some silos, against the other silos.

    told: what each message was an answer to: its silo, set-up, query and model.
    messages, inputs: by place in `told`.
    seeds: of each honest pair, by set-up, as each of the two silos has it.
    """

    def __init__(self, chance, silos, colluding):
        self.chance = chance
        self.aggregation = Masked()
        self.protocols = Protocols(self.aggregation, tuple(range(silos)))
        self.colluding = set(self.protocols.names[silos - colluding :])
        self.honest = [name for name in self.protocols.names if name not in self.colluding]
        self.told, self.messages, self.inputs, self.seeds = [], [], [], []
        self.keys = []
        self.refusals = 0

    def set_up(self, number):
        """One set-up, in which the server lies now and then."""
        session = bytes([number]) * 16
        task = SetUpTask(session, ())
        parties, own = {}, {}
        for name in self.protocols.names:
            member = self.protocols[name]
            member.signer = self.protocols.identities[name].signer(b"settings", session)
            if name in self.honest:
                parties[name] = member.setup(task, np.ones(1, dtype=np.int64))
            else:
                own[name] = PrivateKey.generate().public.raw
        post = {name: task.post(name, self.protocols[name].signer) for name in self.protocols.names}
        signer = self.protocols.identities[SERVER].signer(b"settings", session)
        server = task.post(SERVER, signer)
        keys = {name: next(party)[SERVER].content for name, party in parties.items()}
        for name, key in own.items():
            keys[name] = (key, post[name].signer.sign((KEY, name, key)))
        self.keys.append(keys)
        self.seeds.append({})
        self.ready = set()
        for name, party in parties.items():
            shown = {peer: self._shown(keys, peer, own, post) for peer in keys}
            letter = next(server.send(KEYS, {name: shown}))[name]
            try:
                party.send({SERVER: letter})
            except StopIteration:
                self.ready.add(name)
                self.seeds[-1][name] = dict(self.protocols[name].seeds)
            except AggregationAbortedError:
                self.refusals += 1

    def _shown(self, keys, peer, own, post):
        """The key that a silo is shown as another one's."""
        lie = self.chance.random()
        made = PrivateKey.generate().public.raw
        if lie < 0.03 and len(self.keys) > 1:  # of an earlier set-up
            return self.keys[-2][peer]
        if lie < 0.06 and self.colluding:  # signed by somebody else
            return made, post[min(self.colluding)].signer.sign((KEY, peer, made))
        if lie < 0.08:  # with the signature of the right one
            return made, keys[peer][1]
        if lie < 0.2 and peer in self.colluding:  # other keys of a colluding silo for some silos
            return made, post[peer].signer.sign((KEY, peer, made))
        return keys[peer]

    def ask(self, round):
        """One query: of some silos, with one model or two."""
        query = query_for(self.aggregation, len(self.protocols.names), round, size=SIZE)
        down = tuple((name, vector.shape) for name, vector in MODELS[0].vectors.items())
        session = bytes([len(self.seeds)]) * 16
        query = replace(query, exchange=replace(query.exchange, session=session, down=down))
        signer = self.protocols.identities[SERVER].signer(b"settings", session)
        post = query.post(SERVER, signer)
        two = self.chance.random() < 0.3
        for name in self.honest:
            if name not in self.ready or self.chance.random() < 0.05:
                continue
            self._ask(name, query, post, MODELS[two and self.chance.random() < 0.5])

    def _ask(self, name, query, post, model):
        vector = np.array([self.chance.randint(-99, 99) for _ in range(SIZE)], dtype=float)
        job = LocalJob(iter(()), vector)
        party = self.protocols[name].query(query, lambda _: job)
        next(party)
        try:
            sent = party.send({SERVER: next(post.send(BROADCAST, {name: model}))[name]})
        except (RuntimeError, AggregationAbortedError):
            self.refusals += 1
            return
        self.told.append((name, len(self.seeds) - 1, query.serial, digest_of(model)))
        self.messages.append(sent[SERVER].content)
        self.inputs.append(query.encoding.encode(vector, name))

    def learned(self):
        """Factors of inputs, by place in `told`, in combinations that the coalition can compute."""
        rows = []
        for place, (name, set_up, serial, model) in enumerate(self.told):
            seeds = self.seeds[set_up][name]
            purpose = digest("masked", *serial, model, *sorted(self.protocols.names))
            masks = {
                (seed, purpose): 1 if peer > name else -1
                for peer, seed in seeds.items()
                if peer in self.honest
            }
            plain = self.messages[place].copy()
            smaller = [seed for peer, seed in seeds.items() if peer < name]
            larger = [seed for peer, seed in seeds.items() if peer > name]
            add_masks(plain, smaller, larger, purpose=purpose)
            assert (plain == self.inputs[place]).all()  # nothing else hides the input
            rows.append(masks)
        masks = sorted(set().union(*rows))
        table = [
            [row.get(mask, 0) for mask in masks]
            + [int(place == other) for other in range(len(rows))]
            for place, row in enumerate(rows)
        ]
        return [row for row in eliminated(table, len(masks), 2**64) if any(row)]

    def allowed(self):
        """Sums that may be learned: of all honest silos, with one set-up, query and model."""
        groups = {}
        for place, (name, *about) in enumerate(self.told):
            groups.setdefault(tuple(about), {})[name] = place
        return [set(g.values()) for g in groups.values() if set(g) == set(self.honest)]


def check(seed):
    """One coalition; the number of sums that it learned, and of refusals."""
    chance = Random(seed)
    silos = chance.randint(3, 5)
    coalition = Coalition(chance, silos, chance.randint(0, silos - 2))
    for set_up in range(1, chance.randint(2, 3)):
        coalition.set_up(set_up)
        for _ in range(chance.randint(1, 3)):
            coalition.ask(chance.randint(1, 3))
    learned, allowed = coalition.learned(), coalition.allowed()
    for row in learned:
        inside = {place for place, factor in enumerate(row) if factor}
        for part in allowed:
            if inside & part:
                assert len({row[place] for place in part}) == 1
                inside -= part
        assert not inside
    assert len(learned) == len(allowed)
    return len(learned), coalition.refusals


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 2540), marks=pytest.mark.slow)], ids=str
)
def test_random_servers_learn_the_sum_of_all_honest_silos_alone(seeds):
    found = [check(seed) for seed in seeds]
    assert sum(learned for learned, _ in found) > 10
    assert sum(refusals for _, refusals in found) > 10


# -- a server that sends silos different models ----------------------------------------------------
# It then knows all contributions but one silo's (Pasquini et al., Eluding secure aggregation in
# federated learning via model inconsistency, CCS 2022).


VICTIM = "silo1"
SECRET = np.array([3.0, -1.0, 2.0])
DEAD, ALIVE = Broadcast({"params": np.zeros(3)}), Broadcast({"params": np.ones(3)})
"""Models with which a silo's contribution is zero, and is not."""


def attack(aggregation, others=DEAD):
    """What the server computes when the victim gets a model that tells something, and all others
    get the same one, or one that tells nothing."""
    protocols = Protocols(aggregation, (0, 1, 2, 3)).ready(np.ones((4, 3), dtype=np.int64))

    def respond(broadcast):
        return LocalJob(iter(()), SECRET * broadcast.vectors["params"], bytes(32))

    query = query_for(aggregation, 4, 1, size=3)
    cast = protocols.query(query, dict.fromkeys(protocols.names, respond), others)
    protocols.says(
        cast,
        SERVER,
        BROADCAST,
        lambda sent: {name: ALIVE if name == VICTIM else others for name in sent},
    )
    return run(cast)[SERVER].vector


def test_in_the_clear_nothing_hides_a_silo_anyway():
    np.testing.assert_allclose(attack(Plain()), SECRET)


@pytest.mark.parametrize("aggregation", [SecAgg(), SecAggExactNoise(), SecAgg(neighbours=2)])
def test_silos_with_another_model_do_not_accept_each_others_keys(aggregation):
    with pytest.raises(AggregationAbortedError, match="has not signed its keys"):
        attack(aggregation)


def test_masks_do_not_cancel_between_silos_with_different_models():
    """The server sees uniformly random integers, and their sum is one too."""
    try:
        total = attack(Masked())
    except AggregationAbortedError:
        return  # a sum beyond what honest messages reach
    assert np.abs(total).max() > 1e3


@pytest.mark.parametrize("aggregation", [Masked(), SecAgg()])
def test_one_model_for_all_gives_the_sum(aggregation):
    np.testing.assert_allclose(attack(aggregation, others=ALIVE), 4 * SECRET, atol=1e-6)
