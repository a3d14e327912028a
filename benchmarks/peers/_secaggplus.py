"""Seconds of Flower's SecAgg+, by its own code; run by an interpreter that has flwr and nothing of
ours."""

import importlib
import json
import os
import time
from types import SimpleNamespace

import flwr
import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

client = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
server = importlib.import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")
server.Message = SimpleNamespace  # what it asks goes nowhere, and a real one needs a running task

PARTIES, SIZE, GONE, THRESHOLD, ONE = 100, 1_000_000, 10, 67, 100
"""Parties are 1 to 100; the first ten drop out after sharing, and the last is timed."""
MODULUS = 2**32
RANGE = 2**22
CLIP = 8.0
SETTINGS = {
    Key.SAMPLE_NUMBER: PARTIES,
    Key.SHARE_NUMBER: PARTIES,
    Key.THRESHOLD: THRESHOLD,
    Key.CLIPPING_RANGE: CLIP,
    Key.TARGET_RANGE: RANGE,
    Key.MOD_RANGE: MODULUS,
    Key.MAX_WEIGHT: 1000.0,
}
EVERYBODY = range(1, PARTIES + 1)
ALIVE = range(GONE + 1, PARTIES + 1)


def timed(work, *arguments):
    """The result, and processor seconds of all threads."""
    since = time.process_time()
    result = work(*arguments)
    return result, time.process_time() - since


def main():
    """Print the seconds as one line of JSON."""
    states = {party: client.SecAggPlusState(nid=party) for party in EVERYBODY}
    keys = {party: client._setup(state, SETTINGS) for party, state in states.items()}
    public = {
        str(party): (said[Key.PUBLIC_KEY_1], said[Key.PUBLIC_KEY_2]) for party, said in keys.items()
    }
    one = states[ONE]
    seconds = {"version": flwr.__version__}
    _, seconds["shares"] = timed(client._share_keys, one, public)

    secrets = {
        party: state.sk1 if party <= GONE else os.urandom(32) for party, state in states.items()
    }
    shares = {party: create_shares(secret, THRESHOLD, PARTIES) for party, secret in secrets.items()}
    letters = [
        client.encrypt(
            one.ss2_dict[p],
            share_keys_plaintext_concat(p, ONE, shares[p][ONE - 1], shares[p][ONE - 1]),
        )
        for p in range(1, ONE)
    ]
    update = ndarrays_to_parameters([np.random.default_rng(0).normal(size=SIZE).astype(np.float32)])
    mail = {Key.CIPHERTEXT_LIST: letters, Key.SOURCE_LIST: [*range(1, ONE)]}
    masked, seconds["mask"] = timed(client._collect_masked_vectors, one, mail, 100, update)
    asked = {Key.ACTIVE_NODE_ID_LIST: [*ALIVE], Key.DEAD_NODE_ID_LIST: [*range(1, GONE + 1)]}
    _, seconds["reveal"] = timed(client._unmask, one, asked)

    def unmasked():
        vectors = [server.bytes_to_ndarray(b) for b in masked[Key.MASKED_PARAMETERS]]
        total = vectors
        for _ in range(len(ALIVE) - 1):
            total = parameters_addition(total, vectors)
        state = server.WorkflowState(
            active_node_ids=set(ALIVE),
            sampled_node_ids=set(EVERYBODY),
            nid_to_neighbours={party: set(EVERYBODY) for party in EVERYBODY},
            nid_to_publickeys={int(party): [*pair] for party, pair in public.items()},
            threshold=THRESHOLD,
            clipping_range=CLIP,
            quantization_range=RANGE,
            mod_range=MODULUS,
            aggregate_ndarrays=parameters_mod(total, MODULUS),
        )
        assert server.SecAggPlusWorkflow.unmask_stage(
            SimpleNamespace(timeout=None), Grid(shares), context(), state
        )

    _, seconds["unmask"] = timed(unmasked)
    print(json.dumps(seconds))


class Grid:
    """Answers with every living party's shares."""

    def __init__(self, shares):
        self.shares = shares

    def send_and_receive(self, messages, timeout):
        return [self.reply(party) for party in ALIVE]

    def reply(self, party):
        content = {
            Key.NODE_ID_LIST: [*EVERYBODY],
            Key.SHARE_LIST: [self.shares[p][party - 1] for p in EVERYBODY],
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
