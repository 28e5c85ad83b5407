import threading

import pytest
import torch

from mimex.nn.parallel import in_order, pieces, use_workers


@pytest.fixture(autouse=True)
def one_worker_afterwards():
    yield
    use_workers(1)


def test_results_come_in_order_from_several_threads():
    use_workers(2)
    meet = threading.Barrier(2, timeout=10)  # passes only if two threads work at once

    def work(item):
        meet.wait()
        return item * 10

    assert in_order(work, [1, 2, 3, 4]) == [10, 20, 30, 40]


def test_one_worker_is_the_calling_thread():
    use_workers(1)
    assert set(in_order(lambda _: threading.get_ident(), [1, 2])) == {threading.get_ident()}


def test_an_error_in_a_thread_reaches_the_caller():
    use_workers(2)
    with pytest.raises(ZeroDivisionError):
        in_order(lambda item: 1 / item, [1, 0])


def test_pieces_cover_all_rows_once():
    assert [piece.tolist() for piece in pieces(torch.arange(5), 2)] == [[0, 1], [2, 3], [4]]
    assert pieces(torch.arange(0), 2) == []


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="count=0"):
        use_workers(0)
