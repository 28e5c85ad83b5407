import torch
from mimex.bonus.pieces import PIECE_WINDOWS, PIECES_AT_ONCE, groups, pieces

CPU = torch.device("cpu")


def test_pieces_cover_all_rows_once_and_in_order():
    for rows in (slice(0, 1000), torch.randperm(1000)):
        expected = torch.arange(1000)[rows]
        got = torch.cat([torch.arange(1000)[piece] for piece in pieces(rows, 135, CPU)])
        assert torch.equal(got, expected)
    assert pieces(slice(0, 0), 135, CPU) == []


def test_wide_windows_come_in_small_pieces_and_other_devices_need_none():
    narrow, wide = (pieces(slice(0, 4096), numbers, CPU) for numbers in (135, 196_000))
    assert len(narrow) == 4096 // PIECE_WINDOWS[1]
    assert len(wide) == 4096 // PIECE_WINDOWS[0]
    assert pieces(slice(0, 4096), 135, torch.device("cuda")) == [slice(0, 4096)]


def test_pieces_are_of_one_size_and_even_in_number():
    for total in (1792, 300, 257, 4096):
        sizes = [piece.stop - piece.start for piece in pieces(slice(0, total), 135, CPU)]
        assert len(sizes) % 2 == 0
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= PIECE_WINDOWS[1]
    assert pieces(slice(0, 200), 135, CPU) == [slice(0, 200)]


def test_groups_keep_the_order():
    parts = pieces(slice(0, 10_000), 135, CPU)
    assert [piece for group in groups(parts) for piece in group] == parts
    assert max(map(len, groups(parts))) == PIECES_AT_ONCE
