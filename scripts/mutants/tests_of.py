"""The tests for a source file's mutants: those that mirror the file, then other quick ones."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

GUARDS_ONLY = ("fedpriv/aggregation", "fedpriv/crypto", "fedpriv/parties")
"""Files with mutants of guards only: other tests check their arithmetic."""
FURTHER = (
    (
        "fedpriv/mechanisms/calibration.py",
        "algorithms/test_dp_erm.py algorithms/test_cdp_fedavg.py",
    ),
    (
        "fedpriv/mechanisms/calibration.py",
        "mechanisms/test_paper_noise.py algorithms/test_dp_erm.py",
    ),
    ("fedpriv/mechanisms/discrete_sampling.py", "mechanisms/test_grid_noise.py"),
    ("fedpriv/mechanisms/binomial_sampling.py", "mechanisms/test_discrete_sampling.py"),
    (
        "fedpriv/mechanisms/lowy.py",
        "mechanisms/test_binomial.py papers/test_lowy_counterexamples.py",
    ),
    (
        "fedpriv/mechanisms/*",
        "mechanisms/test_gaussian.py mechanisms/test_grid_noise.py rounds/test_plan.py",
    ),
    (
        "fedpriv/accountants/*",
        "accountants/test_ledger.py accountants/test_accounting_events.py "
        "accountants/test_renyi.py "
        "accountants/test_rdp.py accountants/test_split_users.py "
        "accountants/test_group_privacy.py accountants/test_pld.py accountants/test_zcdp.py "
        "algorithms/test_cdp_fedavg.py algorithms/test_dp_erm.py",
    ),
    ("fedpriv/encoding/slot*", "encoding aggregation/private_weighting/test_weighted_product.py"),
    ("fedpriv/encoding/*", "encoding mechanisms/test_grid_noise.py"),
    (
        "fedpriv/aggregation/private_weighting/*",
        "aggregation/private_weighting/test_private_weighting.py "
        "aggregation/private_weighting/test_private_weighting_integers.py "
        "aggregation/private_weighting/test_weighted_product.py "
        "aggregation/private_weighting/test_private_weighting_attacks.py "
        "aggregation/private_weighting/test_private_weighting_certificates.py "
        "aggregation/private_weighting/test_private_weighting_sampling.py "
        "aggregation/test_settings.py",
    ),
    (
        "fedpriv/aggregation/admm/*",
        "aggregation/admm aggregation/test_settings.py conformance/test_aggregations.py",
    ),
    (
        "fedpriv/aggregation/secagg/*",
        "aggregation/secagg/test_secagg.py "
        "aggregation/secagg/test_secagg_aborts.py aggregation/secagg/test_secagg_knowledge.py "
        "aggregation/secagg/test_exact_noise.py aggregation/secagg/test_sparse_graph.py "
        "aggregation/test_settings.py conformance/test_aggregations.py",
    ),
    (
        "fedpriv/aggregation/*",
        "aggregation/test_settings.py aggregation/test_ring_bits.py aggregation/test_masked.py "
        "conformance/test_aggregations.py rounds/test_plan.py "
        "aggregation/private_weighting/test_private_weighting_certificates.py",
    ),
    (
        "fedpriv/crypto/paillier/*",
        "crypto/paillier aggregation/private_weighting/test_weighted_product.py",
    ),
    ("fedpriv/crypto/*", "crypto aggregation/secagg/test_secagg_aborts.py"),
    (
        "fedpriv/parties/*",
        "parties aggregation/secagg/test_secagg_aborts.py conformance/test_aggregations.py",
    ),
    (
        "fedpriv/certificates/sampling.py",
        "certificates/test_sampling.py certificates/test_derive.py conformance/test_sensitivity.py "
        "papers/test_lowy_counterexamples.py",
    ),
    (
        "fedpriv/certificates/*",
        "certificates/test_derive.py certificates/test_careless_methods.py "
        "certificates/test_ranges.py certificates/test_correlated_noise.py "
        "algorithms/test_dp_erm.py "
        "algorithms/test_cdp_fedavg.py algorithms/test_noisy_gradients.py "
        "algorithms/test_uldp_group.py",
    ),
    (
        "fedpriv/rounds/contributors.py",
        "rounds/test_weighting.py models/test_resnet.py certificates/test_derive.py "
        "algorithms/test_uldp.py "
        "certificates/test_correlated_noise.py algorithms/test_fedprox.py",
    ),
    (
        "fedpriv/rounds/local_job.py",
        "rounds/test_local_job.py aggregation/test_noised_sum.py runtime",
    ),
    ("fedpriv/rounds/one_row.py", "rounds aggregation/test_noised_sum.py"),
    ("fedpriv/rounds/adapting.py", "runtime/test_adapting.py"),
    ("fedpriv/rounds/mixing.py", "runtime/test_mixing.py certificates/test_correlated_noise.py"),
    ("fedpriv/rounds/bounding.py", "runtime/test_silo_bounds.py rounds"),
    (
        "fedpriv/claims/recording/*",
        "claims/recording/test_opacus_steps.py claims/recording/test_flower_updates.py",
    ),
    ("fedpriv/claims/command.py", "claims/test_command.py"),
    (
        "fedpriv/claims/*",
        "claims/test_limits_of_claims.py claims/test_certificates.py claims/test_reading.py "
        "claims/test_shared_seeds.py claims/test_own_epsilons.py claims/test_court.py "
        "claims/test_independent_judge.py claims/test_command.py",
    ),
    ("fedpriv/runs/journal.py", "runs/test_resumed_state.py"),
    ("fedpriv/runs/checkpoint.py", "runs/test_resumed_state.py"),
    (
        "fedpriv/rounds/query.py",
        "rounds/test_plan.py runtime/test_rounds.py conformance/test_aggregations.py",
    ),
    (
        "fedpriv/rounds/plan.py",
        "aggregation/private_weighting/test_private_weighting_certificates.py runtime "
        "algorithms/test_uldp_group.py",
    ),
    (
        "fedpriv/runtime/prepare.py",
        "algorithms/test_local_only.py runs/test_lost_parties.py runs/test_resumed_state.py "
        "test_cli_bad_input.py "
        "training/test_select.py data/test_writers.py runtime",
    ),
    (
        "fedpriv/runtime/silo.py",
        "runtime algorithms/test_scaffold.py algorithms/test_uldp.py algorithms/test_dp_erm.py",
    ),
    (
        "fedpriv/algorithms/*",
        "algorithms/test_uldp.py algorithms/test_uldp_group.py algorithms/test_cdp_fedavg.py "
        "algorithms/test_dp_erm.py algorithms/test_scaffold.py algorithms/test_participation.py "
        "algorithms/test_refused_settings.py conformance/test_algorithms.py",
    ),
    (
        "fedpriv/training/*",
        "training/test_compiled.py training/test_trainers.py training/test_graph.py "
        "training/test_clipped_sum.py training/test_dp_sgd.py training/test_select.py "
        "training/test_optimizers.py training/test_users.py training/test_evaluate.py",
    ),
    ("fedpriv/data/table/*", "data/table data/test_writers.py"),
    (
        "fedpriv/data/*",
        "data/test_allocate.py data/test_files.py data/test_split.py data/test_stability.py "
        "conformance/test_data.py conformance/test_allocators.py",
    ),
    (
        "fedpriv/runs/*",
        "runs/test_resumed_state.py runs/test_checkpoint.py runs/test_status.py "
        "runs/test_run_folders.py runs/test_targets.py runs/test_identity.py "
        "runs/test_folders_of_strangers.py runs/test_open_for_resume.py",
    ),
    (
        "fedpriv/audit/*",
        "audit/test_audit.py audit/test_audit_command.py audit/test_bounds.py "
        "audit/test_one_run.py audit/test_one_run_guessing.py audit/test_planted_bugs.py",
    ),
    *(
        (
            f"fedpriv/testing/{name}.py",
            "testing/test_faults.py testing/test_deaths.py testing/test_tamper.py "
            "testing/test_schedules.py",
        )
        for name in ("faults", "fault_trials", "deaths", "damage", "tamper")
    ),
    (
        "fedpriv/testing/*",
        "testing/test_check_algorithm.py testing/test_check_stability.py "
        "testing/test_outside_package.py audit/test_stated_power.py audit/test_planted_bugs.py "
        "conformance/test_sensitivity.py",
    ),
    ("fedpriv/reports/*", "reports sweeps/test_resumed_sweeps.py"),
    ("fedpriv/settings/*", "settings test_cli_words.py test_cli_bad_input.py test_cli.py"),
    ("fedpriv/engines/site*", "sites"),
    (
        "fedpriv/engines/*",
        "engines/test_bundles.py engines/test_descriptions.py engines/test_inprocess.py "
        "conformance/test_engines.py runs/test_lost_parties.py",
    ),
    ("fedpriv/util/locked_lines.py", "runs/test_journal.py ledgers/test_counted_lines.py"),
    *(
        (f"fedpriv/{room}/*", room)
        for room in (
            *("bundles", "rounds", "comparisons", "sweeps", "models", "util", "papers"),
            *("projects", "sites", "trackers"),
        )
    ),
    (
        "fedpriv/*",
        "runtime rounds/test_plan.py algorithms/test_uldp.py runs/test_lost_parties.py "
        "runs/test_resumed_state.py",
    ),
)
"""Pattern of a source file, first one that fits, and tests beside those that mirror it, quick ones
first."""


def source_files(root: Path, chosen: list[str]) -> list[str]:
    """The files below `root` whose mutants are run: those of the files and folders `chosen`, or
    all."""
    found = []
    for place in chosen or ["fedpriv"]:
        path = root / place
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [str(path.relative_to(root)) for path in found]


def chosen_tests(root: Path, source: str) -> tuple[str, ...]:
    """Test files for the file `source`: those that mirror it, and others that are near."""
    path = Path(source)
    folder = root / Path("tests", *path.parts[1:-1])
    exact = folder / f"test_{path.stem}.py"
    mirror = [exact] if exact.exists() else sorted(folder.glob(f"test_*{path.stem}*.py"))
    further = next(names for pattern, names in FURTHER if fnmatch(source, pattern))
    found = mirror
    for name in further.split():
        place = root / "tests" / name
        found += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    return tuple(dict.fromkeys(str(file.relative_to(root)) for file in found))
