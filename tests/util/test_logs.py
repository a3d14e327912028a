"""run.log of runs side by side, and the logger when none is on its way."""

import threading

from fedpriv.util.logs import LOGGER, RUN_LOG, logged


def test_each_thread_writes_its_own_log(tmp_path):
    folders = [tmp_path / str(number) for number in range(4)]
    together = threading.Barrier(len(folders))

    def run(folder):
        folder.mkdir()
        with logged(folder):
            together.wait(10)
            LOGGER.info("from %s", folder.name)
            together.wait(10)
        LOGGER.info("after it from %s", folder.name)

    threads = [threading.Thread(target=run, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for folder in folders:
        (line,) = (folder / RUN_LOG).read_text().splitlines()
        assert line.endswith(f"INFO from {folder.name}")


def test_the_logger_is_left_as_it_was(tmp_path):
    """With a handler that stays, Python would show nobody a warning from outside of runs."""
    before = [*LOGGER.handlers]
    with logged(tmp_path):
        assert len(LOGGER.handlers) == len(before) + 1
    assert LOGGER.handlers == before
