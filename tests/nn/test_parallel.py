import os
import threading
import time

import pytest
import torch

from mimex.nn.parallel import parallel_map, split_rows, summed_gradients, use_workers


@pytest.fixture(autouse=True)
def one_worker_afterwards():
    yield
    use_workers(1)


def test_pytorchs_threads_are_used_by_default_and_restored():
    use_workers(None)
    torch.set_num_threads(2)
    barrier = threading.Barrier(2, timeout=10)

    def work(_):
        barrier.wait()
        return torch.get_num_threads()

    assert parallel_map(work, [1, 2]) == [1, 1]  # an operation within a worker stays on one thread
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda item: 1 / item, [0, 1])
    assert torch.get_num_threads() == 2


def test_nested_parallel_maps_do_not_deadlock():
    use_workers(2)
    inner = [1, 2, 3]
    found = parallel_map(lambda item: sum(parallel_map(lambda x: x * item, inner)), [1, 10, 100])
    assert found == [6, 60, 600]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_creates_its_own_threads():
    use_workers(2)
    parallel_map(str, [1, 2])
    child = os.fork()
    if child == 0:
        os._exit(0 if parallel_map(str, [1, 2]) == ["1", "2"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_parallel_map_uses_several_threads():
    use_workers(2)
    barrier = threading.Barrier(2, timeout=10)  # passes only if two threads work at once

    def work(item):
        barrier.wait()
        return item * 10

    assert parallel_map(work, [1, 2, 3, 4]) == [10, 20, 30, 40]


def test_one_worker_is_the_calling_thread():
    use_workers(1)
    assert set(parallel_map(lambda _: threading.get_ident(), [1, 2])) == {threading.get_ident()}


def test_an_error_in_a_thread_reaches_the_caller():
    use_workers(2)
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda item: 1 / item, [1, 0])


def test_chunks_cover_all_rows_once():
    assert [chunk.tolist() for chunk in split_rows(torch.arange(5), 2)] == [[0, 1], [2, 3], [4]]
    assert split_rows(torch.arange(0), 2) == []


def test_zero_workers_raise():
    with pytest.raises(ValueError, match="count=0"):
        use_workers(0)


def test_after_an_error_no_more_items_are_started():
    use_workers(2)
    begun = []

    def work(item):
        begun.append(item)
        if item == 0:
            raise ZeroDivisionError
        time.sleep(0.005)  # the other thread would continue with all other items

    with pytest.raises(ZeroDivisionError):
        parallel_map(work, list(range(100)))
    assert len(begun) < 100


@pytest.mark.parametrize("workers", [1, 2])
def test_gradients_of_chunks_sum_to_those_of_the_batch(workers):
    use_workers(workers)
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 1), torch.randn(20, 3)
    unused = torch.nn.Parameter(torch.zeros(1))

    def loss(rows):
        return layer(x[rows]).square().sum(), len(rows)

    parameters = [*layer.parameters(), unused]
    sizes, gradients = summed_gradients(loss, split_rows(torch.arange(20), 2), parameters)
    assert sizes == [2] * 10  # more chunks than are in memory at a time
    whole = torch.autograd.grad(layer(x).square().sum(), parameters[:2])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(gradients, whole, strict=False))
    assert gradients[2] is None


def test_a_loss_without_parameters_has_no_gradients():
    weight = torch.nn.Parameter(torch.zeros(1))
    assert summed_gradients(lambda rows: (torch.zeros(()), 1), [0, 1], [weight])[1] == [None]
