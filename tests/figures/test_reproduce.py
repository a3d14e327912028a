from command import run


def test_a_figure_is_made_where_the_command_is_given(tmp_path):
    done = run("reproduce", "claimed_certified", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [picture] = (tmp_path / "outputs" / "claimed_certified").glob("*/figure.png")
    assert str(picture.relative_to(tmp_path)) in done.stdout


def test_a_figure_that_does_not_exist_is_told_in_one_line(tmp_path):
    done = run("reproduce", "uldp_fl/fig44", cwd=tmp_path)
    assert done.returncode == 2
    assert "uldp_fl/fig44: no such figure; did you mean uldp_fl/fig4?" in done.stderr
    assert len(done.stderr.splitlines()) == 1
