"""Seconds and bytes of Flower's SecAgg+, by its own code; run by an interpreter that has flwr and
nothing of ours.

    python _secaggplus.py parties size gone shares threshold

Parties are 1, 2, ... on a ring. Each shares keys with those next to it, so that there are `shares`
shares of each secret, its own included. The first `gone` parties drop out after sharing, and the
last is timed. Bytes are those of the last party's four answers as Flower counts them. The server
is timed for up to `MOST` parties: it takes a second to share each secret, before the time begins.
"""

import importlib
import json
import os
import sys
import time
from types import SimpleNamespace

import flwr
import numpy as np
from flwr.app import ConfigRecord
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

client = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
server = importlib.import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")
server.Message = SimpleNamespace  # what it asks goes nowhere, and a real one needs a running task

PARTIES, SIZE, GONE, SHARES, THRESHOLD = map(int, sys.argv[1:])
ONE = PARTIES
MOST = 200
MODULUS = 2**32
RANGE = 2**22
CLIP = 8.0
SETTINGS = {
    Key.SAMPLE_NUMBER: PARTIES,
    Key.SHARE_NUMBER: SHARES,
    Key.THRESHOLD: THRESHOLD,
    Key.CLIPPING_RANGE: CLIP,
    Key.TARGET_RANGE: RANGE,
    Key.MOD_RANGE: MODULUS,
    Key.MAX_WEIGHT: 1000.0,
}
EVERYBODY = range(1, PARTIES + 1)
ALIVE = range(GONE + 1, PARTIES + 1)


def around(party):
    """A party and those next to it on the ring, ascending."""
    if SHARES == PARTIES:
        return [*EVERYBODY]
    half = SHARES // 2
    return sorted((party - 1 + step) % PARTIES + 1 for step in range(-half, half + 1))


def timed(work, *arguments):
    """The result, and processor seconds of all threads."""
    since = time.process_time()
    result = work(*arguments)
    return result, time.process_time() - since


def main():
    """Print seconds and megabytes as one line of JSON."""
    states = {party: client.SecAggPlusState(nid=party) for party in EVERYBODY}
    keys = {party: client._setup(state, SETTINGS) for party, state in states.items()}
    public = {
        party: (said[Key.PUBLIC_KEY_1], said[Key.PUBLIC_KEY_2]) for party, said in keys.items()
    }
    one = states[ONE]
    near = around(ONE)
    seconds = {"version": flwr.__version__}
    told = {str(party): public[party] for party in near}
    sharing, seconds["shares"] = timed(client._share_keys, one, told)

    secrets = {
        party: state.sk1 if party <= GONE else os.urandom(32) for party, state in states.items()
    }
    few = near if PARTIES > MOST else EVERYBODY
    shares = {
        party: dict(zip(around(party), create_shares(secrets[party], THRESHOLD, SHARES)))
        for party in few
    }
    others = [party for party in near if party != ONE]
    letters = [
        client.encrypt(
            one.ss2_dict[p],
            share_keys_plaintext_concat(p, ONE, shares[p][ONE], shares[p][ONE]),
        )
        for p in others
    ]
    update = ndarrays_to_parameters([np.random.default_rng(0).normal(size=SIZE).astype(np.float32)])
    mail = {Key.CIPHERTEXT_LIST: letters, Key.SOURCE_LIST: others}
    masked, seconds["mask"] = timed(client._collect_masked_vectors, one, mail, 100, update)
    asked = {
        Key.ACTIVE_NODE_ID_LIST: [party for party in near if party > GONE],
        Key.DEAD_NODE_ID_LIST: [party for party in near if party <= GONE],
    }
    answer, seconds["reveal"] = timed(client._unmask, one, asked)
    answers = (keys[ONE], sharing, masked, answer)
    seconds["sent"] = sum(ConfigRecord(said).count_bytes() for said in answers) / 1e6

    def unmasked():
        vectors = [server.bytes_to_ndarray(b) for b in masked[Key.MASKED_PARAMETERS]]
        total = vectors
        for _ in range(len(ALIVE) - 1):
            total = parameters_addition(total, vectors)
        state = server.WorkflowState(
            active_node_ids=set(ALIVE),
            sampled_node_ids=set(EVERYBODY),
            nid_to_neighbours={party: set(around(party)) for party in EVERYBODY},
            nid_to_publickeys={party: [*pair] for party, pair in public.items()},
            threshold=THRESHOLD,
            clipping_range=CLIP,
            quantization_range=RANGE,
            mod_range=MODULUS,
            aggregate_ndarrays=parameters_mod(total, MODULUS),
        )
        assert server.SecAggPlusWorkflow.unmask_stage(
            SimpleNamespace(timeout=None), Grid(shares), context(), state
        )

    if PARTIES <= MOST:
        _, seconds["unmask"] = timed(unmasked)
    print(json.dumps(seconds))


class Grid:
    """Answers with every living party's shares of the secrets around it."""

    def __init__(self, shares):
        self.shares = shares

    def send_and_receive(self, messages, timeout):
        return [self.reply(party) for party in ALIVE]

    def reply(self, party):
        content = {
            Key.NODE_ID_LIST: around(party),
            Key.SHARE_LIST: [self.shares[p][party] for p in around(party)],
        }
        return SimpleNamespace(
            has_error=lambda: False,
            metadata=SimpleNamespace(src_node_id=party),
            content=SimpleNamespace(config_records={RECORD_KEY_CONFIGS: content}),
        )


def context():
    """What the workflow looks at beside its own state; the strategy keeps nothing."""
    records = {server.MAIN_CONFIGS_RECORD: {server.WorkflowKey.CURRENT_ROUND: 1}}
    strategy = SimpleNamespace(aggregate_fit=lambda *_: (None, {}))
    return SimpleNamespace(
        state=SimpleNamespace(config_records=records), strategy=strategy, history=None
    )


if __name__ == "__main__":
    main()
