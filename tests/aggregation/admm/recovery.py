"""The vectors that colluding peers determine, computed in floating point as they would."""

import numpy as np

from fedpriv.aggregation.admm.knowledge import Coalition, row_of


def recovered(peers, letters):
    """The determined vectors (d,) float64, by (model, peer), from unmasked messages."""
    seen = [
        (observation, value)
        for observation, value in peers.observations(letters)
        if value is not None
    ]
    coalition = Coalition(peers.colluders, peers.penalty)
    values = {(o.aggregation, o.iteration, frozenset(o.shares)): value for o, value in seen}
    rows = []
    results = []
    for observation, value in seen:
        coalition.sees(observation)
        offset = _offset(peers, observation, values)
        if offset is None:
            continue
        result = value - offset * float(sum(observation.shares.values()))
        others = {}
        for name, share in observation.shares.items():
            if name in peers.colluders:
                own = values[observation.aggregation, observation.iteration, frozenset((name,))]
                result = result - float(share) * (own - offset)
            else:
                others[name] = share
        rows.append(row_of(observation._replace(shares=others), peers.penalty))
        results.append(result)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    matrix = np.array([[float(row.get(column, 0)) for column in columns] for row in rows])
    solved = np.linalg.lstsq(matrix, np.stack(results), rcond=None)[0]
    return {key: solved[columns.index(("vector", *key))] for key in coalition.determined()}


def _offset(peers, seen, values):
    """The public part of a message in this iteration; None where an earlier z is not known."""
    offset = np.zeros(1)
    last = 0.0
    for iteration in range(2, seen.iteration + 1):
        z = _z(peers, seen.aggregation, iteration - 1, values)
        if z is None:
            return None
        last = peers.penalty.at(iteration - 1)
        rho = peers.penalty.at(iteration)
        offset = (rho * z + 2 * last / rho * (offset - z)) / (2 + rho)
    return offset


def _z(peers, serial, iteration, values):
    """z of an iteration, from the groups' sums or from the messages in them."""
    total = np.zeros(1)
    for group in set(peers.groups[serial, iteration].values()):
        part = values.get((serial, iteration, group))
        if part is None:
            single = [values.get((serial, iteration, frozenset((name,)))) for name in sorted(group)]
            if any(value is None for value in single):
                return None
            part = sum(
                (peers.shares[n] * v for n, v in zip(sorted(group), single) if v is not None),
                np.zeros(1),
            )
        total = total + part
    return total
