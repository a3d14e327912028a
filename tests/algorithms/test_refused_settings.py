"""Arguments of methods that are refused, by the last word of the command line."""

import re

import pytest

from fedpriv.errors import ConfigError
from fedpriv.testing import experiment

CASES = """
cdp_fedavg algo.local_steps=0
cdp_fedavg algo.batch_size=0
cdp_fedavg algo.local_lr=0.0
cdp_fedavg algo.cohort=0
cdp_fedavg algo.participation=some
cdp_fedavg algo.feature_norm=-1.0
cdp_fedavg algo.calibration=own
cdp_fedavg mechanism=none algo.calibration=certified
cdp_fedavg algo.epsilon=0.0
cdp_fedavg algo.calibration=certified algo.observer=nobody
cdp_fedavg algo.records_per_user=0
dp_erm algo.local_steps=0
dp_erm algo.strong_convexity=0.0
dp_erm algo.strong_convexity=0.1 algo.smoothness=0.05
dp_erm algo.calibration=some
dp_erm algo.epsilon=0.0
dp_erm algo.records_per_user=0
dp_sgd algo.records_per_user=0
fedopt algo.rule=sgd
fedopt algo.momentum=1
fedopt algo.second_moment=-0.1
fedopt algo.adaptivity=0
fedopt mechanism.clip=1.0 mechanism.noise_multiplier=1.0 mechanism=gaussian
fedprox algo.proximal=-1
local_sgd algo.records_per_user=0
prox_sgd mechanism=none algo.calibration=paper
prox_svrg algo.calibration=paper
scaffold optimizer=adam
secured_fl algo.init_weights=mine
spider algo.variant=other
spider algo.phase=0
spider algo.anchor_batch_size=0
spider algo.batch_size=0
spider algo.variant=alternate algo.prox=l1
spider algo.sampling=coins
spider algo.gradient_share=1.0
spider algo.released=best
spider algo.cohort=2 algo.least_cohort=3
uldp_avg algo.user_rate=0.0
uldp_avg algo.user_rate=1.5
uldp_avg algo.user_rate=nan
uldp_avg algo.weighting=size
uldp_avg algo.global_lr=0.0
uldp_avg algo.local_epochs=0
uldp_avg algo.batch_size=0
uldp_avg algo.local_lr=-0.1
uldp_naive algo.calibration=none
"""


@pytest.mark.parametrize("case", CASES.split("\n")[1:-1])
def test_impossible_settings_are_refused(case):
    algo, *words = case.split()
    with pytest.raises(ConfigError, match=re.escape(words[-1])):
        experiment(f"algo={algo}", *words)
