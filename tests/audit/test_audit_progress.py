"""An audit says what it does, with the time left, and is silent when asked."""

from fedpriv.audit import progress as module
from fedpriv.audit.progress import AuditProgress


def test_stages_and_rounds_are_shown(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = AuditProgress()
    progress.stage("premises", 20.0)
    progress.stage("one run")
    for number in range(1, 6):
        now[0] += 6
        progress.round(number, 5)
    assert capsys.readouterr().err.splitlines() == [
        "audit: premises  about 20 s left",
        "audit: one run",
        "audit: one run: round 2/5  about 18 s left",
        "audit: one run: round 4/5  about 6 s left",
    ]


def test_a_quiet_audit_says_nothing(capsys):
    progress = AuditProgress(quiet=True)
    progress.stage("premises", 20.0)
    progress.round(1, 5)
    assert capsys.readouterr() == ("", "")
