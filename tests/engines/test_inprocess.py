import pytest

from fedpriv.engines.inprocess import InProcess


def test_messages_arrive_and_results_come_back():
    def silo(value):
        inbox = yield {"server": value}
        return inbox["server"] * value

    def server():
        inbox = yield {}
        total = sum(inbox.values())
        yield dict.fromkeys(inbox, total)

    learned = InProcess().run({"a": silo(2), "server": server(), "b": silo(5)})
    assert learned == {"a": 14, "b": 35, "server": None}


def test_order_of_parties_does_not_matter():
    def silo(name):
        yield {"server": name}

    def server():
        return sorted((yield {}).items())

    parties = dict.fromkeys(("z", "a", "m"), silo)
    one = InProcess().run({**{n: f(n) for n, f in parties.items()}, "server": server()})
    two = InProcess().run({"server": server(), **{n: f(n) for n, f in reversed(parties.items())}})
    assert one == two


def test_a_silent_party_does_not_hang_the_others():
    def silent():
        yield {}

    def talker():
        yield {"server": 1}

    def server():
        return dict((yield {}))

    assert InProcess().run({"quiet": silent(), "loud": talker(), "server": server()})["server"] == {"loud": 1}


def test_what_a_party_raises_comes_out():
    def broken():
        yield {}
        raise ValueError("bad")

    def other():
        yield {"broken": 1}

    with pytest.raises(ValueError, match="bad"):
        InProcess().run({"broken": broken(), "other": other()})


def test_a_server_learns_that_nobody_answers():
    def silent():
        yield {}

    def server():
        yield {"silo": "hello"}
        return "nobody"

    assert InProcess().run({"silo": silent(), "server": server()})["server"] == "nobody"


def test_mail_to_who_has_left_is_lost():
    def early():
        return 1
        yield

    def late():
        yield {"early": "?"}
        return 2

    assert InProcess().run({"early": early(), "late": late()}) == {"early": 1, "late": 2}


def test_waiting_for_ever_is_an_error():
    def stubborn():
        while True:
            yield {}

    with pytest.raises(RuntimeError, match="stubborn"):
        InProcess().run({"stubborn": stubborn()})
